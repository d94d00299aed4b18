"""Small documents for tests: PDFs made by hand, plain and hostile."""

import zlib


def pdf(*pages: str, title: str = "", extra: str = "") -> bytes:
    """Returns a valid PDF with one text a page. `extra` is added to the trailer."""
    contents = [f"BT /F1 12 Tf 72 700 Td ({_escaped(text)}) Tj ET".encode("latin-1") for text in pages]
    return pdf_of_streams(contents, title=title, extra=extra)


def pdf_of_streams(contents: list[bytes], title: str = "", extra: str = "", is_packed: bool = False) -> bytes:
    """Returns a PDF whose pages have these content streams."""
    first = 5
    kids = " ".join(f"{first + 2 * at} 0 R" for at in range(len(contents)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(contents)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        f"<< /Title ({_escaped(title)}) >>".encode("latin-1"),
    ]
    for at, content in enumerate(contents):
        page = f"/Type /Page /Parent 2 0 R /Resources << /Font << /F1 3 0 R >> >> /Contents {first + 2 * at + 1} 0 R"
        objects.append(f"<< {page} /MediaBox [0 0 612 792] >>".encode())
        filters = "/Filter /FlateDecode " if is_packed else ""
        objects.append(f"<< {filters}/Length {len(content)} >>\nstream\n".encode() + content + b"\nendstream")
    return assembled(objects, extra)


def assembled(objects: list[bytes], extra: str = "") -> bytes:
    """Returns the objects as a file, with its table of places; the first is the catalog and the fourth the info."""
    body = b"%PDF-1.7\n"
    places = []
    for number, written in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj\n".encode() + written + b"\nendobj\n"
    table = b"".join(f"{place:010} 00000 n \n".encode() for place in places)
    start = len(body)
    body += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode() + table
    trailer = f"<< /Size {len(objects) + 1} /Root 1 0 R /Info 4 0 R {extra} >>"
    return body + f"trailer\n{trailer}\nstartxref\n{start}\n%%EOF\n".encode()


def encrypted_pdf(password: str) -> bytes:
    """Returns a PDF that only this password opens; an empty one opens it for everybody."""
    import io

    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf("Locked words."))))
    writer.encrypt(user_password=password, owner_password="owner", algorithm="AES-256")
    made = io.BytesIO()
    writer.write(made)
    return made.getvalue()


def bomb_pdf(size_bytes: int = 2 * 1024**3) -> bytes:
    """Returns a PDF whose one content stream unpacks to that many bytes."""
    packer = zlib.compressobj(9)
    piece = b"0 0 m " * 200_000
    packed = b"".join(packer.compress(piece) for _ in range(size_bytes // len(piece))) + packer.flush()
    return pdf_of_streams([packed], is_packed=True)


def deep_pdf(depth: int = 20_000) -> bytes:
    """Returns a PDF whose pages are nested that deep in arrays."""
    return assembled([b"<< /Type /Catalog /Pages 2 0 R >>", b"[" * depth + b"]" * depth, b"<< >>", b"<< >>"])


def looping_pdf() -> bytes:
    """Returns a PDF whose tree of pages contains itself."""
    tree = b"<< /Type /Pages /Kids [2 0 R 2 0 R 2 0 R] /Count 1000000 >>"
    return assembled([b"<< /Type /Catalog /Pages 2 0 R >>", tree, b"<< >>", b"<< >>"])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
