"""The generated parts of docs/, from the rows that the service is made of: `python -m scripts.docs`."""
