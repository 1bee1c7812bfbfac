"""What is known of the frameworks that are wrapped."""
