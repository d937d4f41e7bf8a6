"""Array libraries: one file per plug-in (group ``logitloom.backends``)."""
