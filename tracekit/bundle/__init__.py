"""An archive to attach to an issue: the diagnosis, figures and an anonymous slice of the trace."""
