//! `map`: the region, once for every register.

use std::collections::HashMap;

use tilewright_ir::{Constant, Element, OpData, Opcode, Region, Type, Value};

use super::{Held, Lowering};

impl Lowering<'_> {
    pub(super) fn map(&mut self, data: &OpData) {
        if self.widens(data) {
            return self.hold(data.results[0], Held::Widened(data.operands[0]));
        }
        let layout = self.layout(data.results[0]);
        let operands: Vec<Vec<Value>> =
            data.operands.iter().map(|&value| self.tile_in(value, &layout).registers).collect();
        let region = data.regions[0];
        let mut results: Vec<Vec<Value>> = vec![Vec::with_capacity(layout.count()); data.results.len()];
        let once = self.invariant(region);
        // Registers that hold the same (all of a broadcast row, say) give the same.
        let mut known: HashMap<Vec<Value>, Vec<Value>> = HashMap::new();
        for register in 0..layout.count() {
            let arguments: Vec<Value> = operands.iter().map(|tile| tile[register]).collect();
            let out = match known.get(&arguments) {
                Some(out) => out.clone(),
                None => {
                    let out = self.inline(region, &arguments, &once);
                    known.insert(arguments, out.clone());
                    out
                }
            };
            results.iter_mut().zip(out).for_each(|(list, value)| list.push(value));
        }
        for (&result, registers) in data.results.iter().zip(results) {
            self.hold_tile(result, layout.clone(), registers);
        }
    }

    /// Whether a map does nothing but turn halves into f32.
    fn widens(&self, data: &OpData) -> bool {
        let source = self.source;
        let [op, _] = source.region(data.regions[0]).ops[..] else { return false };
        let inner = source.op(op);
        inner.code == Opcode::Cvt
            && inner.attrs.is_empty()
            && matches!(source.ty(inner.operands[0]), Type::Scalar(Element::F16 | Element::BF16))
            && source.ty(inner.results[0]) == Type::F32
            && data.operands.len() == 1
    }

    /// The ops of a region that do not depend on its arguments, made once: which value stands for which.
    pub(super) fn invariant(&mut self, region: Region) -> HashMap<Value, Value> {
        let source = self.source;
        let mut once = HashMap::new();
        let mut own: Vec<Value> = source.region(region).args.to_vec();
        for &op in &source.region(region).ops {
            let data = source.op(op);
            if !data.regions.is_empty()
                || data.info().is_terminator()
                || data.operands.iter().any(|v| own.contains(v))
            {
                own.extend(&data.results);
            } else {
                self.copy_element(data, &mut once);
            }
        }
        once
    }

    /// The region's ops with these arguments; gives what it yields. `once` says what has been made already.
    pub(super) fn inline(
        &mut self,
        region: Region,
        arguments: &[Value],
        once: &HashMap<Value, Value>,
    ) -> Vec<Value> {
        let source = self.source;
        let mut own = once.clone();
        own.extend(source.region(region).args.iter().copied().zip(arguments.iter().copied()));
        self.elements(region, &mut own)
    }

    /// Copies the ops of a region; gives the operands of its terminator.
    fn elements(&mut self, region: Region, own: &mut HashMap<Value, Value>) -> Vec<Value> {
        let source = self.source;
        for &op in &source.region(region).ops {
            let data = source.op(op);
            if data.info().is_terminator() {
                return data.operands.iter().map(|&v| self.element_value(v, own)).collect();
            }
            if data.results.first().is_none_or(|result| !own.contains_key(result)) {
                self.copy_element(data, own);
            }
        }
        Vec::new()
    }

    fn element_value(&mut self, value: Value, own: &HashMap<Value, Value>) -> Value {
        match own.get(&value) {
            Some(&own) => own,
            None => self.scalar(value),
        }
    }

    fn copy_element(&mut self, data: &OpData, own: &mut HashMap<Value, Value>) {
        let source = self.source;
        let types: Vec<Type> = data.results.iter().map(|&v| source.ty(v)).collect();
        if data.code == Opcode::Const {
            let bits = data.get().map_or(0, |Constant(bits)| bits);
            own.insert(data.results[0], self.constant(types[0], bits));
            return;
        }
        let operands: Vec<Value> = data.operands.iter().map(|&v| self.element_value(v, own)).collect();
        let op = self.push(data.code, operands, data.attrs.to_vec(), types);
        for &region in &data.regions {
            let to = self.builder.open(op);
            for &arg in &source.region(region).args {
                let value = self.builder.func.add_arg(to, source.ty(arg));
                own.insert(arg, value);
            }
            let end = self.elements(region, own);
            let code = source.terminator(region).map_or(Opcode::Yield, |end| source.op(end).code);
            self.push(code, end, [], []);
            self.builder.close();
        }
        for (i, &result) in data.results.iter().enumerate() {
            let value = self.builder.func.op(op).results[i];
            own.insert(result, value);
        }
    }
}
