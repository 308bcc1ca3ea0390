"""Ask the machine: read-only, no load.

``inspect_machine`` joins what NVML (asked in a child, :mod:`.ask_nvml`), Linux's files (:mod:`.sysfs`), software and surroundings say.
``recorded`` answers in their place from a saved machine; ``readers`` from text that somebody pasted.
"""
