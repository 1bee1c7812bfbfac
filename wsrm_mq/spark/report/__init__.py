"""The report of ``reconcile``: one HTML file that needs no network and no script.

``contents`` reads the tables, ``page`` fills the templates ``page.html`` and ``charts.html``.
"""
