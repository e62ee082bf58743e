"""The walls of the kernel around commands: what a contained command may change, read and reach."""
