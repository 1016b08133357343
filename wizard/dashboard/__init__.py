"""events → RunState → what the dashboard draws."""
