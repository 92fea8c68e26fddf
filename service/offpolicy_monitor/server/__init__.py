"""HTTP: routes, problem documents, pages, the process around them. Everything is wired in `app.create_app`."""
