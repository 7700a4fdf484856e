"""Compiles the kernels beside this file with NVRTC; no GPU is needed.

    python compile.py LIBNVRTC OUTPUT_FOLDER --include FOLDER [--include FOLDER ...] [FILE.cu ...]

What is compiled is said by the head of each file: `// ptx: NAME VERSION OPTION ...` makes NAME.ptx with the NVRTC of that
version. Lines for other versions than the library's are passed over, so one run a version makes all of them.
"""
import argparse, collections, ctypes, pathlib, re, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from plain import without_folders

parser = argparse.ArgumentParser()
parser.add_argument("library")
parser.add_argument("output", type=pathlib.Path)
parser.add_argument("files", nargs="*", type=pathlib.Path)
parser.add_argument("--include", action="append", default=[])
arguments = parser.parse_intermixed_args()
nvrtc = ctypes.CDLL(arguments.library)


def version():
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def text(program, what):
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    return buffer.value.decode()


def compiled(path, options):
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), path.read_bytes(), path.name.encode(), 0, None, None)
    words = options + ["-std=c++17"] + [f"--include-path={folder}" for folder in arguments.include]
    array = (ctypes.c_char_p * len(words))(*[word.encode() for word in words])
    result = nvrtc.nvrtcCompileProgram(program, len(words), array)
    log = text(program, "ProgramLog").strip()
    if result:
        sys.exit(f"{path.name} {options}:\n{log}")
    if log:
        print(f"{path.name}: {log}")
    ptx = without_folders(text(program, "PTX"))
    # The library's headers define a thousand constants that nothing uses.
    names = collections.Counter(re.findall(r"\b_Z\w+", ptx))
    return re.sub(r"^\.global [^;]*?\b(_Z\w+)[^;]*;\n", lambda line: line[0] if names[line[1]] > 1 else "", ptx, flags=re.MULTILINE)


for path in arguments.files or sorted(pathlib.Path(__file__).parent.glob("*.cu")):
    for name, wanted, options in re.findall(r"^// ptx: (\S+) (\S+) (.*)$", path.read_text(), re.MULTILINE):
        if wanted == version():
            ptx = compiled(path, [f"--gpu-architecture={options.split()[0]}"] + options.split()[1:])
            (arguments.output / f"{name}.ptx").write_text(ptx)
            print(name, len(ptx))
