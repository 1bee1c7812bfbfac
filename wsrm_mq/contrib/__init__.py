"""Knowledge of the frameworks whose services are wrapped."""
