"""What ``reconcile`` found, for a reader: one HTML file that needs no network and no script.

``contents`` reads the tables, ``charts`` draws, ``page`` puts both together.
"""
