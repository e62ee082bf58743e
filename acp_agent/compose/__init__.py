"""How a session is put together: backends, gates, tools, loop. With `app`, the only place that knows them all.

Everything heavy hangs below this package, which `app` loads in the background once `session/new` is answered.
"""
