"""One conversation: the session, the sessions of a process, the transcript, and the factory of a session's engine."""
