"""HTTP itself: connections, bodies, answers, problems, and the parameters that routes share. Knows no route."""
