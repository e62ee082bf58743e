"""One conversation and its life: the session, the sessions of a process, the transcript, and how a session is built."""
