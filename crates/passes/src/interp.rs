//! A scalar interpreter: executes a function of one thread, op by op.
//!
//! Used by tests of passes ("before and after give the same") and of the math library. It knows every op that
//! [`evaluate`] knows, element by element on vectors, structured control flow, and plain loads and stores in one flat
//! memory in which pointers are positions. What other threads take part in, and what the hardware keeps, is refused.
//!
//! ```
//! use tilewright_ir::{Constant, parse};
//! use tilewright_passes::interp::Interpreter;
//!
//! let module = parse(
//!     "func @factorial (%n: u32) -> u32 {
//!        %0 = const value(1) : u32
//!        %1 = add %n, %0 : u32
//!        %2 = for %0, %1, %0, %0 : u32 do {
//!          (%3: u32, %4: u32)
//!          %5 = mul %4, %3 : u32
//!          yield %5
//!        }
//!        return %2
//!      }",
//! )?;
//! let results = Interpreter::default().run(&module.funcs[0], &[Constant(5)])?;
//! assert_eq!(results, [Some(Constant(120))]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A value that nobody may depend on (`poison`, a quotient by zero) is `None`, and so is what is computed from it; a branch on it is an
//! error.

use smallvec::SmallVec;
use tilewright_ir::{
    Attribute, Constant, Element, Func, Index, Op, OpData, Opcode, Region, Type, Value, canonical,
};

use crate::effects::is_ordered;
use crate::eval::{Approximate, evaluate};

/// Why a function could not be executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InterpError {
    /// An op that one thread alone cannot execute.
    #[error(
        "`{mnemonic}` cannot be interpreted; only scalar code, control flow and plain loads and stores can"
    )]
    Unsupported {
        /// The op.
        mnemonic: &'static str,
    },
    /// A branch, an address or an assertion depends on a value that is not defined.
    #[error("`{mnemonic}` depends on an undefined value")]
    Undefined {
        /// The op.
        mnemonic: &'static str,
    },
    /// An access outside memory.
    #[error("address {address:#x} with {bytes} bytes lies outside the memory of {size} bytes")]
    OutOfBounds {
        /// The address.
        address: u64,
        /// The size of the access.
        bytes: usize,
        /// The size of the memory.
        size: usize,
    },
    /// An assertion failed, or the program stopped itself.
    #[error("the program stopped: {message}")]
    Stopped {
        /// The text of the assertion.
        message: String,
    },
    /// Too many ops.
    #[error("more than {limit} ops were executed; raise `fuel` if the program is meant to run that long")]
    OutOfFuel {
        /// The limit.
        limit: u64,
    },
    /// Arguments do not fit the parameters.
    #[error("function {name:?} takes {expected} arguments, {found} were given")]
    Arguments {
        /// The function.
        name: String,
        /// How many it takes.
        expected: usize,
        /// How many were given.
        found: usize,
    },
}

/// The state that outlives a call: memory and settings.
#[derive(Debug, Clone)]
pub struct Interpreter {
    /// The memory that pointers lead into; all spaces share it.
    pub memory: Vec<u8>,
    /// What to do with approximate ops.
    pub approximate: Approximate,
    /// How many ops may be executed in one run.
    pub fuel: u64,
}

impl Default for Interpreter {
    fn default() -> Interpreter {
        Interpreter { memory: Vec::new(), approximate: Approximate::AsExact, fuel: 1_000_000 }
    }
}

/// The elements of a value; `None` for those that are not defined.
type Lanes = SmallVec<[Option<u64>; 1]>;

impl Interpreter {
    /// Executes a function and gives what it returns: scalars, `None` where the result is undefined.
    ///
    /// # Errors
    /// [`InterpError`] if the function does what one thread cannot, or goes wrong.
    pub fn run(&mut self, func: &Func, args: &[Constant]) -> Result<Vec<Option<Constant>>, InterpError> {
        let params = &func.region(func.body()).args;
        if params.len() != args.len() {
            return Err(InterpError::Arguments {
                name: func.name.clone(),
                expected: params.len(),
                found: args.len(),
            });
        }
        let fuel = self.fuel;
        let mut thread = Thread { machine: self, func, values: vec![Lanes::new(); func.value_count()], fuel };
        for (&param, arg) in params.iter().zip(args) {
            let bits = func.ty(param).element().map_or(arg.0, |e| canonical(e, arg.0));
            thread.values[param.index()] = Lanes::from_elem(Some(bits), 1);
        }
        let returned = thread.region(func.body())?;
        Ok(returned.into_iter().map(|lanes| lanes.first().copied().flatten().map(Constant)).collect())
    }
}

struct Thread<'a> {
    machine: &'a mut Interpreter,
    func: &'a Func,
    values: Vec<Lanes>,
    fuel: u64,
}

impl Thread<'_> {
    /// Executes a region; gives what its terminator hands over.
    fn region(&mut self, region: Region) -> Result<Vec<Lanes>, InterpError> {
        let func = self.func;
        for &op in &func.region(region).ops {
            self.fuel =
                self.fuel.checked_sub(1).ok_or(InterpError::OutOfFuel { limit: self.machine.fuel })?;
            let data = func.op(op);
            if data.info().is_terminator() {
                return Ok(data.operands.iter().map(|&v| self.get(v)).collect());
            }
            self.op(op)?;
        }
        Ok(Vec::new())
    }

    fn get(&self, value: Value) -> Lanes {
        self.values[value.index()].clone()
    }

    fn bind(&mut self, targets: &[Value], values: Vec<Lanes>) {
        for (&target, lanes) in targets.iter().zip(values) {
            self.values[target.index()] = lanes;
        }
    }

    /// A scalar that must be known.
    fn known(&self, data: &OpData, value: Value) -> Result<u64, InterpError> {
        let lanes = &self.values[value.index()];
        lanes.first().copied().flatten().ok_or(InterpError::Undefined { mnemonic: data.info().mnemonic })
    }

    fn op(&mut self, op: Op) -> Result<(), InterpError> {
        let data = self.func.op(op);
        match data.code {
            Opcode::If => {
                let arm = usize::from(self.known(data, data.operands[0])? == 0);
                let values = self.region(data.regions[arm])?;
                self.bind(&data.results, values);
            }
            Opcode::For => self.count(data)?,
            Opcode::While => self.repeat(data)?,
            Opcode::Load | Opcode::LoadIf | Opcode::Store | Opcode::StoreIf if !is_ordered(data) => {
                self.access(data)?;
            }
            Opcode::Assert => {
                if self.known(data, data.operands[0])? == 0 {
                    return Err(InterpError::Stopped { message: data.text().unwrap_or("").to_owned() });
                }
            }
            Opcode::Trap => return Err(InterpError::Stopped { message: "trap".to_owned() }),
            Opcode::Trace | Opcode::MakePolicy => {}
            _ => {
                let [result] = data.results[..] else { return Err(unsupported(data)) };
                self.values[result.index()] = self.compute(data, self.func.ty(result))?;
            }
        }
        Ok(())
    }

    fn count(&mut self, data: &OpData) -> Result<(), InterpError> {
        let func = self.func;
        let signed = func.ty(data.operands[0]).element().is_some_and(Element::is_signed);
        let mut bounds = [0i128; 3];
        for (bound, &operand) in bounds.iter_mut().zip(&data.operands) {
            let bits = self.known(data, operand)?;
            *bound = if signed { i128::from(bits.cast_signed()) } else { i128::from(bits) };
        }
        let [mut counter, upper, step] = bounds;
        let mut carried: Vec<Lanes> = data.operands[3..].iter().map(|&v| self.get(v)).collect();
        let args = &func.region(data.regions[0]).args;
        while counter < upper {
            let bits = u64::try_from(counter & i128::from(u64::MAX)).unwrap_or(0);
            self.values[args[0].index()] = Lanes::from_elem(Some(bits), 1);
            self.bind(&args[1..], carried);
            carried = self.region(data.regions[0])?;
            counter += step;
        }
        self.bind(&data.results, carried);
        Ok(())
    }

    fn repeat(&mut self, data: &OpData) -> Result<(), InterpError> {
        let func = self.func;
        let mut carried: Vec<Lanes> = data.operands.iter().map(|&v| self.get(v)).collect();
        loop {
            self.bind(&func.region(data.regions[0]).args, carried);
            let mut passed = self.region(data.regions[0])?;
            let goes_on = passed.remove(0).first().copied().flatten();
            match goes_on {
                None => return Err(InterpError::Undefined { mnemonic: "condition" }),
                Some(0) => {
                    self.bind(&data.results, passed);
                    return Ok(());
                }
                Some(_) => self.bind(&func.region(data.regions[1]).args, passed),
            }
            carried = self.region(data.regions[1])?;
        }
    }

    fn access(&mut self, data: &OpData) -> Result<(), InterpError> {
        let load = matches!(data.code, Opcode::Load | Opcode::LoadIf);
        let predicate = match data.code {
            Opcode::LoadIf => Some(data.operands[1]),
            Opcode::StoreIf => Some(data.operands[2]),
            _ => None,
        };
        if let Some(predicate) = predicate
            && self.known(data, predicate)? == 0
        {
            if load {
                let value = self.get(data.operands[2]);
                self.bind(&data.results, vec![value]);
            }
            return Ok(());
        }
        let value = if load { data.results[0] } else { data.operands[1] };
        let ty = self.func.ty(value);
        let Some(element) = ty.element().filter(|e| e.bits() >= 8) else { return Err(unsupported(data)) };
        let (lanes, width) = (ty.lanes() as usize, element.bytes() as usize);
        let address = self.known(data, data.operands[0])?;
        let size = self.machine.memory.len();
        let bytes = lanes * width;
        let outside = InterpError::OutOfBounds { address, bytes, size };
        let start = usize::try_from(address).map_err(|_| outside.clone())?;
        let end = start.checked_add(bytes).filter(|&end| end <= size).ok_or(outside)?;
        if load {
            let elements = self.machine.memory[start..end].chunks(width).map(|chunk| {
                let bits = chunk.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
                Some(canonical(element, bits))
            });
            let elements = elements.collect();
            self.values[value.index()] = elements;
        } else {
            for (i, lane) in self.get(value).into_iter().enumerate() {
                let bits = lane.ok_or(InterpError::Undefined { mnemonic: data.info().mnemonic })?;
                self.machine.memory[start + i * width..][..width]
                    .copy_from_slice(&bits.to_le_bytes()[..width]);
            }
        }
        Ok(())
    }

    fn compute(&self, data: &OpData, ty: Type) -> Result<Lanes, InterpError> {
        let count = ty.lanes().max(1) as usize;
        let operand = |i: usize| &self.values[data.operands[i].index()];
        let index = data.get::<Index>().map_or(0, |Index(i)| i as usize);
        Ok(match data.code {
            Opcode::Poison => Lanes::from_elem(None, count),
            Opcode::Const => Lanes::from_elem(data.get::<Constant>().map(Attribute::encode), 1),
            Opcode::Pack => (0..count).map(|i| operand(i).first().copied().flatten()).collect(),
            Opcode::Extract | Opcode::Slice => operand(0)[index..index + count].iter().copied().collect(),
            Opcode::Insert => {
                let mut lanes = operand(0).clone();
                lanes[index] = operand(1)[0];
                lanes
            }
            Opcode::Concat => data.operands.iter().flat_map(|&v| self.get(v)).collect(),
            Opcode::Select => match operand(0)[0] {
                None => Lanes::from_elem(None, count),
                Some(0) => operand(2).clone(),
                Some(_) => operand(1).clone(),
            },
            Opcode::Bitcast => self.bitcast(data, ty),
            Opcode::PtrAdd => {
                let mask = if ty.bits() == 32 { u64::from(u32::MAX) } else { u64::MAX };
                let sum = operand(0)[0].zip(operand(1)[0]).map(|(p, d)| p.wrapping_add(d) & mask);
                Lanes::from_elem(sum, 1)
            }
            Opcode::CastSpace => operand(0).clone(),
            Opcode::PtrToInt | Opcode::IntToPtr => {
                let mask = if ty.bits() == 32 { u64::from(u32::MAX) } else { u64::MAX };
                let fit = |bits: u64| ty.element().map_or(bits & mask, |e| canonical(e, bits));
                operand(0).iter().map(|lane| lane.map(fit)).collect()
            }
            _ if data.info().is_pure() && !data.operands.is_empty() => {
                (0..count).map(|lane| self.element(data, ty, lane)).collect::<Result<_, _>>()?
            }
            _ => return Err(unsupported(data)),
        })
    }

    /// One element of an op that works element by element.
    fn element(&self, data: &OpData, ty: Type, lane: usize) -> Result<Option<u64>, InterpError> {
        let scalar = |ty: Type| ty.element().map(Type::Scalar);
        let mut operands: SmallVec<[(Type, Constant); 4]> = SmallVec::new();
        for &value in &data.operands {
            let lanes = &self.values[value.index()];
            let Some(bits) = lanes.get(lane).or(lanes.first()).copied().flatten() else { return Ok(None) };
            operands.push((scalar(self.func.ty(value)).ok_or_else(|| unsupported(data))?, Constant(bits)));
        }
        let to = scalar(ty).ok_or_else(|| unsupported(data))?;
        let zero_divisor = matches!(data.code, Opcode::Div | Opcode::Rem)
            && to.element().is_some_and(Element::is_int)
            && operands.get(1).is_some_and(|(_, c)| c.0 == 0);
        if zero_divisor {
            return Ok(None);
        }
        match evaluate(data.code, &data.attrs, &operands, to, self.machine.approximate) {
            Some(Constant(bits)) => Ok(Some(bits)),
            None => Err(unsupported(data)),
        }
    }

    /// The same bits, cut differently; undefined as a whole if a part is.
    fn bitcast(&self, data: &OpData, ty: Type) -> Lanes {
        let from = &self.values[data.operands[0].index()];
        let from_bits = self.func.ty(data.operands[0]).bits() as usize / from.len().max(1);
        let count = ty.lanes().max(1) as usize;
        let to_bits = ty.bits() as usize / count;
        let Some(known) = from.iter().copied().collect::<Option<SmallVec<[u64; 4]>>>() else {
            return Lanes::from_elem(None, count);
        };
        let bit = |at: usize| known[at / from_bits] >> (at % from_bits) & 1;
        let element = |lane: usize| {
            let bits = (0..to_bits).fold(0, |bits, i| bits | bit(lane * to_bits + i) << i);
            Some(ty.element().map_or(bits, |e| canonical(e, bits)))
        };
        (0..count).map(element).collect()
    }
}

fn unsupported(data: &OpData) -> InterpError {
    InterpError::Unsupported { mnemonic: data.info().mnemonic }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_ir::parse;

    fn run(text: &str, args: &[u64]) -> Result<Vec<Option<u64>>, InterpError> {
        let module = parse(text).unwrap();
        let mut interpreter = Interpreter { memory: (0..16).collect(), fuel: 100, ..Interpreter::default() };
        let args: Vec<Constant> = args.iter().map(|&bits| Constant(bits)).collect();
        Ok(interpreter.run(&module.funcs[0], &args)?.into_iter().map(|v| v.map(|c| c.0)).collect())
    }

    #[test]
    fn vectors_are_cut_and_joined_as_bits() {
        let text = "func @f (%x: u32) -> u8, u32 {
          %0 = bitcast %x : 4xu8
          %1 = extract %0 index(1) : u8
          %2 = add %0, %0 : 4xu8
          %3 = bitcast %2 : u32
          return %1, %3
        }";
        assert_eq!(run(text, &[0x8041_2210]), Ok(vec![Some(0x22), Some(0x0082_4420)]));
    }

    #[test]
    fn memory_is_little_endian_and_bounded() {
        let text = "func @f (%p: ptr<global>) -> i16 {
          %0 = load %p : i16
          return %0
        }";
        assert_eq!(run(text, &[2]), Ok(vec![Some(0x0302)]));
        assert_eq!(run(text, &[15]), Err(InterpError::OutOfBounds { address: 15, bytes: 2, size: 16 }));
        assert!(matches!(run(text, &[u64::MAX]), Err(InterpError::OutOfBounds { .. })));
    }

    #[test]
    fn undefined_values_may_be_carried_but_not_asked() {
        let text = |last: &str| {
            format!(
                "func @f (%x: u32) -> u32 {{ %0 = const value(0) : u32 %1 = div %x, %0 : u32 %2 = add %1, %x : u32 {last} return %2 }}"
            )
        };
        assert_eq!(run(&text(""), &[7]), Ok(vec![None]));
        let branch = "%3 = cmp %2, %x cmp(lt) : bool if %3 then { } else { }";
        assert_eq!(run(&text(branch), &[7]), Err(InterpError::Undefined { mnemonic: "if" }));
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let endless = "func @f (%c: bool) { while test { condition %c } do { } }";
        assert_eq!(run(endless, &[1]), Err(InterpError::OutOfFuel { limit: 100 }));
        assert_eq!(run(endless, &[0]), Ok(vec![]));
        assert_eq!(
            run("func @f () { %0 = special reg(tid.x) : u32 }", &[]),
            Err(InterpError::Unsupported { mnemonic: "special" })
        );
        let stops = run("func @f (%c: bool) { assert %c text(\"no\") }", &[0]);
        assert_eq!(stops, Err(InterpError::Stopped { message: "no".into() }));
        assert!(matches!(run(endless, &[]), Err(InterpError::Arguments { expected: 1, found: 0, .. })));
    }
}
