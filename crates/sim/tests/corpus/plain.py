"""Takes the folders of the machine out of compiled PTX."""
import os, pathlib, re


def without_folders(ptx):
    """File names without their folders; in the debug sections, where lengths are counted, dots instead of the folder."""
    ptx = re.sub(r'(\.file\s+\d+\s+")[^"]*/([^"/]*")', r"\1\2", ptx)
    here = pathlib.Path(__file__).resolve().parent
    for folder in sorted({os.getcwd(), str(here), str(here / "triton"), str(here / "cuda")}, key=len, reverse=True):
        # One byte a line, perhaps with a comment, or several after commas.
        between = r"\b(?:[ \t]*(?://[^\n]*)?\n\s*\.b8 |,)"
        bytes_of_it = r"(?<=[ ,])" + between.join(str(ord(letter)) for letter in folder) + r"\b"
        ptx = re.sub(bytes_of_it, lambda found: re.sub(r"(\.b8 |,|^)\d+", r"\g<1>46", found[0]), ptx)
    return ptx
