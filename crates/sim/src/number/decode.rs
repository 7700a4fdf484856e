//! The modifiers of an instruction, types apart from the other words.

use smallvec::SmallVec;
use tilewright_ptx::{Instruction, Modifier, Type};

/// Modifiers taken apart.
pub(super) struct Words {
    /// The types, in order.
    pub(super) types: SmallVec<[Type; 4]>,
    /// Everything else.
    pub(super) rest: SmallVec<[Modifier; 8]>,
}

impl Words {
    pub(super) fn of(instruction: &Instruction) -> Words {
        let rest = instruction.modifiers.iter().copied().filter(|word| word.ty().is_none()).collect();
        Words { types: instruction.types().collect(), rest }
    }

    /// The first type.
    pub(super) fn first(&self) -> Option<Type> {
        self.types.first().copied()
    }

    pub(super) fn has(&self, word: Modifier) -> bool {
        self.rest.contains(&word)
    }

    /// Whether there is no word besides these.
    pub(super) fn only(&self, allowed: &[Modifier]) -> bool {
        self.rest.iter().all(|word| allowed.contains(word))
    }

    /// The one word that `meaning` knows; `Err` where there are two.
    pub(super) fn one<T>(&self, meaning: impl Fn(Modifier) -> Option<T>) -> Result<Option<T>, ()> {
        let mut found = self.rest.iter().filter_map(|word| meaning(*word));
        let first = found.next();
        if found.next().is_some() { Err(()) } else { Ok(first) }
    }
}
