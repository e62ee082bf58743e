"""The pre-execution verifiers (requirements S2): one file each, and the gate that runs them."""
