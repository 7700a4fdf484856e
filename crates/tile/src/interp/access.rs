//! Ops that read and write memory.

use tilewright_ir::{Combine, Element, OpData, Opcode, Shape, Type, Value};

use super::InterpError;
use super::column::Column;
use super::exec::{Machine, Stop};
use super::memory::Fault;
use super::scalar;
use super::shape::coordinates;

/// A box of a tensor: where the elements of a tile are, if they are in the tensor.
struct Window {
    pointer: u64,
    starts: Vec<i64>,
    extents: Vec<i64>,
    strides: Vec<u64>,
    bytes: u64,
}

impl Window {
    /// The address of an element; none if it is outside of the tensor.
    fn address(&self, at: &[u32]) -> Option<u64> {
        let mut distance = 0u64;
        for (axis, &i) in at.iter().enumerate() {
            let coordinate = self.starts[axis] + i64::from(i);
            if coordinate < 0 || coordinate >= self.extents[axis] {
                return None;
            }
            distance = distance.wrapping_add(coordinate.cast_unsigned().wrapping_mul(self.strides[axis]));
        }
        Some(self.pointer.wrapping_add(distance.wrapping_mul(self.bytes)))
    }
}

impl Machine<'_, '_, '_> {
    fn element(&self, data: &OpData, value: Value) -> Result<Element, InterpError> {
        self.ty(value).element().ok_or_else(|| self.program.unsupported(data))
    }

    fn read(&self, data: &OpData, element: Element, address: u64) -> Result<u64, Stop> {
        self.memory.read(element, address).map_err(|fault| self.fault(data, element, address, fault, false))
    }

    fn write(&mut self, data: &OpData, element: Element, address: u64, bits: u64) -> Result<(), Stop> {
        match self.memory.write(element, address, bits) {
            Ok(()) => Ok(()),
            Err(fault) => Err(self.fault(data, element, address, fault, true)),
        }
    }

    fn fault(&self, data: &OpData, element: Element, address: u64, fault: Fault, write: bool) -> Stop {
        if fault == Fault::Reread {
            return Stop::Reread;
        }
        let owner = self.memory.owner(address).map(|(argument, distance, size)| {
            let name = &self.program.func.params[argument].name;
            (format!("argument {argument} ({name:?}, {size} bytes)"), distance)
        });
        let problem = match (fault, owner) {
            (_, None) => "where no buffer is; pass every pointer as an argument".to_owned(),
            (Fault::Outside, Some((buffer, distance))) => {
                format!(
                    "{distance} bytes from the start of {buffer} and not inside; check starts, extents, strides and masks"
                )
            }
            (Fault::Misaligned, Some((buffer, distance))) => {
                format!(
                    "{distance} bytes from the start of {buffer}, which is no multiple of the size of {element}"
                )
            }
            (Fault::ReadOnly | Fault::Reread, Some((buffer, distance))) => {
                format!(
                    "{distance} bytes from the start of {buffer}, which may only be read; pass it as `Argument::Memory`"
                )
            }
        };
        let verb = if write { "writes" } else { "reads" };
        InterpError::Access { site: self.site(data), verb, bytes: element.bytes(), address, problem }.into()
    }

    /// A load of scalars that all of the program takes part in.
    pub(super) fn load(&mut self, data: &OpData) -> Result<(), Stop> {
        if data.code == Opcode::LoadIf && self.scalar(data.operands[1]) == 0 {
            let other = self.get(data.operands[2]);
            self.set(data.results[0], other);
            return Ok(());
        }
        let ty = self.ty(data.results[0]);
        let (element, lanes) = match ty {
            Type::Pointer(_) => (Element::U64, 1),
            _ => (self.element(data, data.results[0])?, ty.lanes()),
        };
        let address = self.scalar(data.operands[0]);
        let words = (0..lanes)
            .map(|lane| self.read(data, element, address.wrapping_add(u64::from(lane * element.bytes()))));
        let words = words.collect::<Result<_, _>>()?;
        self.set(data.results[0], Column::Same(words));
        Ok(())
    }

    /// The box that operands from `first` on describe.
    fn window(&self, data: &OpData, element: Element, rank: usize, first: usize) -> Window {
        let words = |group: usize| {
            let from = first + group * rank;
            data.operands[from..from + rank].iter().map(|&v| self.scalar(v))
        };
        Window {
            pointer: self.scalar(data.operands[0]),
            starts: words(0).map(u64::cast_signed).collect(),
            extents: words(1).map(u64::cast_signed).collect(),
            strides: words(2).collect(),
            bytes: u64::from(element.bytes()),
        }
    }

    pub(super) fn tile_load(&mut self, data: &OpData) -> Result<(), Stop> {
        let (result, shape) = (data.results[0], self.shape(data, data.results[0])?);
        let element = self.element(data, result)?;
        let window = self.window(data, element, shape.rank(), 1);
        let pad = data.operands.last().map_or(0, |&pad| self.scalar(pad));
        let mut words = Vec::with_capacity(shape.elements() as usize);
        each(shape, |_, at| {
            words.push(match window.address(at) {
                Some(address) => self.read(data, element, address)?,
                None => pad,
            });
            Ok(())
        })?;
        self.set(result, Column::tile(words));
        Ok(())
    }

    pub(super) fn tile_store(&mut self, data: &OpData) -> Result<(), Stop> {
        let (tile, shape) = (data.operands[1], self.shape(data, data.operands[1])?);
        let element = self.element(data, tile)?;
        let window = self.window(data, element, shape.rank(), 2);
        let tile = self.get(tile);
        each(shape, |i, at| match window.address(at) {
            Some(address) => self.write(data, element, address, tile.words()[i]),
            None => Ok(()),
        })
    }

    /// Calls `visit` with position and address of every element that the mask lets through.
    fn addresses(
        &mut self,
        data: &OpData,
        element: Element,
        mut visit: impl FnMut(&mut Self, usize, u64) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let pointer = self.scalar(data.operands[0]);
        let (distances, mask) = (self.get(data.operands[1]), self.get(data.operands[2]));
        for (i, (&distance, &on)) in distances.words().iter().zip(mask.words()).enumerate() {
            if on != 0 {
                // Distances are extended to 64 bits by their sign, so that wrapping sums are right for all types.
                let bytes = distance.wrapping_mul(u64::from(element.bytes()));
                visit(self, i, pointer.wrapping_add(bytes))?;
            }
        }
        Ok(())
    }

    pub(super) fn gather(&mut self, data: &OpData) -> Result<(), Stop> {
        let element = self.element(data, data.operands[3])?;
        let mut words = self.get(data.operands[3]).words().to_vec();
        self.addresses(data, element, |machine, i, address| {
            words[i] = machine.read(data, element, address)?;
            Ok(())
        })?;
        self.set(data.results[0], Column::tile(words));
        Ok(())
    }

    pub(super) fn scatter(&mut self, data: &OpData) -> Result<(), Stop> {
        let element = self.element(data, data.operands[3])?;
        let tile = self.get(data.operands[3]);
        self.addresses(data, element, |machine, i, address| {
            machine.write(data, element, address, tile.words()[i])
        })
    }

    pub(super) fn atomic(&mut self, data: &OpData) -> Result<(), Stop> {
        let element = self.element(data, data.operands[3])?;
        let refuse = |machine: &Self| machine.program.unsupported(data);
        let combine = data.get::<Combine>();
        let code = match combine {
            Some(Combine::Exchange) => None,
            _ => {
                let code = combine.and_then(|combine| scalar::combine(combine, element));
                Some(code.ok_or_else(|| refuse(self))?)
            }
        };
        let mut words = self.get(data.operands[3]).words().to_vec();
        self.addresses(data, element, |machine, i, address| {
            let before = machine.read(data, element, address)?;
            let after = match code {
                Some(code) => scalar::step(code, element, before, words[i]).ok_or_else(|| refuse(machine))?,
                None => words[i],
            };
            machine.write(data, element, address, after)?;
            words[i] = before;
            Ok(())
        })?;
        self.set(data.results[0], Column::tile(words));
        Ok(())
    }

    pub(super) fn atomic_cas(&mut self, data: &OpData) -> Result<(), Stop> {
        let element = self.element(data, data.operands[3])?;
        let expected = self.get(data.operands[3]);
        let mut words = self.get(data.operands[4]).words().to_vec();
        self.addresses(data, element, |machine, i, address| {
            let before = machine.read(data, element, address)?;
            if before == expected.words()[i] {
                machine.write(data, element, address, words[i])?;
            }
            words[i] = before;
            Ok(())
        })?;
        self.set(data.results[0], Column::tile(words));
        Ok(())
    }
}

/// Calls `visit` with position and coordinates of every element, until it fails.
fn each(shape: Shape, mut visit: impl FnMut(usize, &[u32]) -> Result<(), Stop>) -> Result<(), Stop> {
    let mut outcome = Ok(());
    let mut i = 0;
    coordinates(shape, |at| {
        outcome = visit(i, at);
        i += 1;
        outcome.is_ok()
    });
    outcome
}
