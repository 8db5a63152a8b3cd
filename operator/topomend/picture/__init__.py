"""Pictures of what the plugin's verbs answer, as one SVG or one HTML file: text in, text out, no request to anywhere.

Each picture is a ``document.Picture``: drawings, and the same facts in words and tables, so that nobody needs to see
the drawing. ``node`` draws a machine as lstopo does, ``pool``, ``refusal``, ``room``, ``simulations`` and ``aligned``
draw the answers of a verb each, ``page`` writes the file. Leaves finding the answers to the rooms below, and asking for
them to the commands.
"""
