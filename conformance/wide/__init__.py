"""The wide tier: batches of production size, drawn with numpy from one seed, held against the vectorised reference.

``forms.py`` draws them by named forms, ``loop.py`` runs one: draw, build, compare, confirm by the oracle; ``serve.py``
is the loop as a process, ``process.py`` the parent's side of it.
"""
