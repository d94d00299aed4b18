"""Self-healing: notices what is stuck or failed beside the runs."""
