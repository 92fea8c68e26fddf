"""Write the generated parts of docs/: `make docs`. A test fails when they differ from what is checked in."""

from scripts.docs.pages import DOCS, pages

if __name__ == "__main__":
    for page, content in pages().items():
        page.write_text(content)
        print(f"wrote {page.relative_to(DOCS.parent)}")
