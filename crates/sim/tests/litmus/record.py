"""Runs every case on a Hopper GPU and writes recorded.json: python3 record.py [--raw FOLDER] [--only PREFIX,PREFIX...]

Needs the driver (libcuda.so.1) and nothing else; with `ncu` on the path it reads the counters of the cases that have
some. With `--only`, the others keep what is recorded of them. A case may end its context, so cases run in worker processes, and a worker that dies is started again behind the
case that killed it.
"""
import csv
import ctypes as C
import datetime
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile

from inputs import numbers

HERE = os.path.dirname(os.path.abspath(__file__))
WORKERS = 12
PATIENCE = 45
FILL = 0xCD
SMALL = 256
CHUNK = 512

METRICS = [
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
]


def summary(data):
    """Words in hexadecimal of little, hashes (FNV-1a of 32 bits) of pieces of much."""
    if len(data) <= SMALL:
        return data.hex()
    hashes = []
    for at in range(0, len(data), CHUNK):
        value = 0x811C9DC5
        for byte in data[at:at + CHUNK]:
            value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
        hashes.append(f"{value:08x}")
    return "#" + "".join(hashes)


def module_of(case):
    return case["name"].split("/")[0]


class Failed(Exception):
    pass


class Driver:
    def __init__(self):
        self.cu = C.CDLL("libcuda.so.1")
        self.check(self.cu.cuInit(0))
        self.device, self.context = C.c_int(), C.c_void_p()
        self.check(self.cu.cuDeviceGet(C.byref(self.device), 0))
        self.check(self.cu.cuDevicePrimaryCtxRetain(C.byref(self.context), self.device))
        self.check(self.cu.cuCtxSetCurrent(self.context))
        self.modules, self.made = {}, {}

    def check(self, code):
        if code:
            text = C.c_char_p()
            self.cu.cuGetErrorName(code, C.byref(text))
            raise Failed((text.value or b"?").decode())

    def about(self):
        name, version = C.create_string_buffer(100), C.c_int()
        self.check(self.cu.cuDeviceGetName(name, 100, self.device))
        self.check(self.cu.cuDriverGetVersion(C.byref(version)))
        return name.value.decode(), version.value

    def function(self, module, entry):
        if module not in self.modules:
            with open(os.path.join(HERE, "ptx", module + ".ptx"), "rb") as file:
                text = file.read()
            log = C.create_string_buffer(1 << 16)
            options, values = (C.c_int * 2)(5, 6), (C.c_void_p * 2)(C.addressof(log), len(log))
            handle = C.c_void_p()
            code = self.cu.cuModuleLoadDataEx(C.byref(handle), text, 2, options, values)
            if code:
                sys.stderr.write(log.value.decode())
            self.check(code)
            self.modules[module] = handle
        function = C.c_void_p()
        self.check(self.cu.cuModuleGetFunction(C.byref(function), self.modules[module], entry.encode()))
        return function

    def buffer(self, data):
        address = C.c_uint64()
        self.check(self.cu.cuMemAlloc_v2(C.byref(address), C.c_size_t(len(data))))
        self.check(self.cu.cuMemcpyHtoD_v2(address, data, C.c_size_t(len(data))))
        return address.value

    def map(self, spec, address):
        block = C.create_string_buffer(192)
        at = (C.addressof(block) + 63) // 64 * 64
        rank = len(spec["dims"])
        dims, strides = (C.c_uint64 * 5)(*spec["dims"]), (C.c_uint64 * 5)(*spec["strides"])
        steps = (C.c_uint32 * 5)(*spec.get("steps", [1] * 5))
        head = [C.c_void_p(at), spec["type"], rank, C.c_void_p(address), dims, strides]
        tail = [steps, 0, spec.get("swizzle", 0), 0, spec.get("fill", 0)]
        if "box" in spec:
            code = self.cu.cuTensorMapEncodeTiled(*head, (C.c_uint32 * 5)(*spec["box"]), *tail)
        else:
            corners = [(C.c_int * 3)(*spec[c]) for c in ("lower", "upper")]
            code = self.cu.cuTensorMapEncodeIm2col(*head, *corners, spec["channels"], spec["pixels"], *tail)
        if code:
            raise Failed("refused")
        return block, at

    def run(self, case):
        buffers, compared, values, keep = [], [], [], []
        for arg in case["args"]:
            address = None
            if "out" in arg or "numbers" in arg or "words" in arg:
                if "out" in arg:
                    data = bytes([FILL]) * arg["out"]
                elif "words" in arg:
                    data = b"".join(w.to_bytes(4, "little") for w in arg["words"])
                else:
                    key = (arg["numbers"], arg["count"], arg["seed"])
                    if key not in self.made:
                        self.made[key] = numbers(*key)
                    data = self.made[key]
                address = self.buffer(data)
                if "out" in arg or arg.get("keep"):
                    compared.append((address, len(data)))
                value = None if arg.get("hidden") else C.c_uint64(address)
            elif "map" in arg:
                block, at = self.map(arg["map"], buffers[arg["map"]["of"]])
                keep.append(block)
                value = (C.c_char * 128).from_address(at)
            else:
                (kind, number), = arg.items()
                value = {"u16": C.c_uint16, "u32": C.c_uint32, "u64": C.c_uint64}[kind](number)
            buffers.append(address)
            if value is not None:
                values.append(value)
        function = self.function(module_of(case), case["entry"])
        self.check(self.cu.cuFuncSetAttribute(function, 8, case.get("shared", 0)))
        pointers = (C.c_void_p * max(1, len(values)))(*[C.addressof(v) for v in values])
        self.launch(function, case, pointers)
        self.check(self.cu.cuCtxSynchronize())
        results = []
        for address, size in compared:
            data = C.create_string_buffer(size)
            self.check(self.cu.cuMemcpyDtoH_v2(data, C.c_uint64(address), C.c_size_t(size)))
            results.append(data.raw)
        for address in buffers:
            if address:
                self.check(self.cu.cuMemFree_v2(C.c_uint64(address)))
        return results

    def launch(self, function, case, pointers):
        class Attribute(C.Structure):
            _fields_ = [("id", C.c_int), ("pad", C.c_char * 4), ("value", C.c_uint32 * 16)]

        class Config(C.Structure):
            _fields_ = [("dims", C.c_uint32 * 6), ("shared", C.c_uint32), ("stream", C.c_void_p), ("attributes", C.c_void_p), ("count", C.c_uint32)]

        attribute = Attribute(id=4)
        config = Config(shared=case.get("shared", 0))
        config.dims[:] = case.get("grid", [1, 1, 1]) + case.get("block", [32, 1, 1])
        if "cluster" in case:
            attribute.value[:3] = case["cluster"]
            config.attributes, config.count = C.addressof(attribute), 1
        self.check(self.cu.cuLaunchKernelEx(C.byref(config), function, pointers, None))


def work(cases):
    """A worker: one line for each case, and an end at the first that breaks the context."""
    driver = Driver()
    for case in cases:
        try:
            results = [data.hex() for data in driver.run(case)]
            print(json.dumps({"name": case["name"], "results": results}), flush=True)
        except Failed as error:
            print(json.dumps({"name": case["name"], "error": str(error)}), flush=True)
            if str(error) != "refused":
                os._exit(1)


def supervise(cases, found):
    while cases:
        worker = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--work"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            output, _ = worker.communicate(json.dumps(cases), timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            worker.kill()
            output, _ = worker.communicate()
        done = [json.loads(line) for line in output.splitlines() if line.endswith("}")]
        for result in done:
            found[result["name"]] = result
        if len(done) < len(cases) and (not done or "error" not in done[-1]):
            found[cases[len(done)]["name"]] = {"error": "hang or crash"}
            done.append(None)
        cases = cases[len(done):]


def counters(cases):
    """What ncu says of the cases with counters, launch by launch."""
    command = ["ncu", "--csv", "--print-units", "base", "--clock-control", "none", "--metrics", ",".join(METRICS), sys.executable, os.path.abspath(__file__), "--work"]
    run = subprocess.run(command, input=json.dumps(cases), capture_output=True, text=True)
    lines = [line for line in run.stdout.splitlines() if line.startswith('"')]
    found = [{} for _ in cases]
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        # What is not there is 0.
        if value := int(row["Metric Value"].replace(",", "")):
            found[int(row["ID"])][row["Metric Name"]] = value
    if not lines:
        sys.stderr.write(run.stdout[-2000:] + run.stderr[-2000:])
    return {case["name"]: values for case, values in zip(cases, found) if values}


def main():
    if "--work" in sys.argv:
        return work(json.load(sys.stdin))
    with open(os.path.join(HERE, "cases.json")) as file:
        cases = json.load(file)
    every, kept = cases, {}
    if "--only" in sys.argv:
        only = tuple(sys.argv[sys.argv.index("--only") + 1].split(","))
        cases = [case for case in cases if case["name"].startswith(only)]
        with open(os.path.join(HERE, "recorded.json")) as file:
            kept = json.load(file)["cases"]
    # So that the code of each module is made once: the driver keeps it.
    first, modules = [], set()
    for case in cases:
        if module_of(case) not in modules:
            modules.add(module_of(case))
            first.append(case)
    found = {}
    threads = [threading.Thread(target=supervise, args=([case], found)) for case in first]
    threads += [threading.Thread(target=supervise, args=(cases[i::WORKERS], found)) for i in range(WORKERS)]
    for batch in (threads[:len(first)], threads[len(first):]):
        for thread in batch:
            thread.start()
        for thread in batch:
            thread.join()
    driver = Driver()
    gpu, version = driver.about()
    measured = [case for case in cases if case.get("counters")]
    counts = counters(measured) if shutil.which("ncu") and measured else {}
    lines = []
    for case in every:
        result = found.get(case["name"])
        if result is None:
            if case["name"] in kept:
                lines.append(f"{json.dumps(case['name'])}:{json.dumps(kept[case['name']], separators=(',', ':'))}")
            continue
        entry = {"error": result["error"]} if "error" in result else {"results": [summary(bytes.fromhex(r)) for r in result["results"]]}
        if case["name"] in counts:
            entry["counters"] = counts[case["name"]]
        lines.append(f"{json.dumps(case['name'])}:{json.dumps(entry, separators=(',', ':'))}")
    head = json.dumps({"gpu": gpu, "driver": version, "date": datetime.date.today().isoformat()})
    with open(os.path.join(HERE, "recorded.json"), "w") as file:
        file.write(head[:-1] + ', "cases": {\n' + ",\n".join(lines) + "\n}}\n")
    if "--raw" in sys.argv:
        folder = sys.argv[sys.argv.index("--raw") + 1]
        files = {m: zipfile.ZipFile(os.path.join(folder, m + ".zip"), "w", zipfile.ZIP_DEFLATED) for m in modules if m != "banks"}
        for case in cases:
            for i, data in enumerate(found[case["name"]].get("results", [])):
                if module_of(case) in files:
                    files[module_of(case)].writestr(f"{case['name']}.{i}", bytes.fromhex(data))
        for file in files.values():
            file.close()
    errors = [name for name, result in found.items() if "error" in result]
    print(len(cases), "cases,", len(errors), "of them errors; counters of", len(counts))


if __name__ == "__main__":
    main()
