"""Writes ptx/*.ptx and cases.json: python3 make.py"""
import make_banks
import make_matrix
import make_sync
import make_tma
import make_warp
from common import write

if __name__ == "__main__":
    modules = [m for maker in (make_tma, make_matrix, make_warp, make_sync, make_banks) for m in maker.make()]
    print(write(modules), "cases")
