"""Verbs on queues: functions ``verb(tx, …)``, each run in one transaction of the store."""
