"""For all tests."""

import signal

# `make test &` in a script starts with interruptions ignored, which children inherit; some tests interrupt them.
signal.signal(signal.SIGINT, signal.default_int_handler)
