"""Many clients, several workers, faults at random: nothing may be lost, repeated or swapped. ``make soak`` runs it."""
