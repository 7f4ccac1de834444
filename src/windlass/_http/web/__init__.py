"""HTTP mechanics that know nothing of tasks: bodies, routes, problems, CORS."""
