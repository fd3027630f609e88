//! A look at a kernel's SPIR-V: whether it offers what the kernel declares.
use super::{KernelText, Slot};
use crate::{ErrorKind, Result};

const MAGIC: u32 = 0x0723_0203;
/// Words before the first instruction.
const HEADER: usize = 5;

/// Numbers of instructions.
mod op {
    pub(super) const ENTRY_POINT: u32 = 15;
    pub(super) const EXECUTION_MODE: u32 = 16;
    pub(super) const TYPE_POINTER: u32 = 32;
    pub(super) const VARIABLE: u32 = 59;
    pub(super) const DECORATE: u32 = 71;
}

/// Numbers of decorations.
mod decoration {
    pub(super) const BUFFER_BLOCK: u32 = 3;
    pub(super) const BINDING: u32 = 33;
    pub(super) const DESCRIPTOR_SET: u32 = 34;
}

/// Numbers of storage classes that are bound.
mod class {
    pub(super) const UNIFORM_CONSTANT: u32 = 0;
    pub(super) const UNIFORM: u32 = 2;
    pub(super) const STORAGE_BUFFER: u32 = 12;
}

const GL_COMPUTE: u32 = 5;
const LOCAL_SIZE: u32 = 17;

fn wrong(detail: &'static str) -> Result<()> {
    Err(ErrorKind::InvalidConfig.because(detail))
}

pub(super) fn check(kernel: &KernelText) -> Result<()> {
    let words = kernel.spirv;
    if words.is_empty() {
        return Ok(());
    }
    if words.len() < HEADER || words[0] != MAGIC || Instructions::of(words).any(|it| it.is_none()) {
        return wrong("`spirv` is no module, or is cut short; pass all that the compiler made");
    }
    let module = Module { words };
    let Some(entry) = module.entry(kernel.name) else {
        return wrong("`spirv` has no compute entry point that is called like the kernel's `name`");
    };
    let mut modes = module.all(op::EXECUTION_MODE);
    let is_another = |operands: &[u32]| match operands {
        [id, LOCAL_SIZE, size @ ..] => *id == entry && size != kernel.group,
        _ => false,
    };
    if modes.any(is_another) {
        return wrong("the group size in `spirv` is not the kernel's `group`");
    }
    module.bound().try_for_each(|(id, is_storage)| {
        let binding = module.decoration(id, decoration::BINDING);
        let slot = binding.and_then(|binding| kernel.slots.get(usize::try_from(binding).ok()?));
        match slot.filter(|_| module.decoration(id, decoration::DESCRIPTOR_SET) == Some(0)) {
            None => wrong("`spirv` binds what is not in `slots`: slot i is binding i of set 0"),
            Some(slot) if is_storage != Some(*slot != Slot::Constant) => wrong(
                "`spirv` binds a slot as something else: `Constant` is a uniform buffer, `Read` and \
                 `Write` are storage buffers",
            ),
            Some(_) => Ok(()),
        }
    })
}

/// The instructions of a module: number and operands; `None` and the end where one is cut short.
struct Instructions<'a>(&'a [u32]);

impl<'a> Instructions<'a> {
    fn of(words: &'a [u32]) -> Self {
        Self(&words[HEADER..])
    }
}

impl<'a> Iterator for Instructions<'a> {
    type Item = Option<(u32, &'a [u32])>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = *self.0.first()?;
        let (number, length) = (first & 0xFFFF, (first >> 16) as usize);
        if length == 0 || length > self.0.len() {
            self.0 = &[];
            return Some(None);
        }
        let (instruction, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(Some((number, &instruction[1..])))
    }
}

/// A module whose instructions are whole.
struct Module<'a> {
    words: &'a [u32],
}

impl<'a> Module<'a> {
    /// Returns the operands of every instruction with this number.
    fn all(&self, wanted: u32) -> impl Iterator<Item = &'a [u32]> {
        let all = Instructions::of(self.words).flatten();
        all.filter(move |(number, _)| *number == wanted).map(|(_, operands)| operands)
    }

    /// Returns the function behind an entry point.
    fn entry(&self, name: &str) -> Option<u32> {
        self.all(op::ENTRY_POINT).find_map(|operands| match operands {
            [GL_COMPUTE, id, text @ ..] => {
                let bytes = text.iter().flat_map(|word| word.to_le_bytes());
                bytes.take_while(|byte| *byte != 0).eq(name.bytes()).then_some(*id)
            }
            _ => None,
        })
    }

    /// Returns the variables that are bound, each with whether it is a storage buffer; `None` for what is no buffer.
    fn bound(&self) -> impl Iterator<Item = (u32, Option<bool>)> {
        self.all(op::VARIABLE).filter_map(|operands| {
            let [kind, id, class, ..] = *operands else { return None };
            match class {
                class::UNIFORM_CONSTANT => Some((id, None)),
                // Before version 1.3 a decoration of the type tells them apart.
                class::UNIFORM => Some((id, Some(self.is_buffer_block(kind)))),
                class::STORAGE_BUFFER => Some((id, Some(true))),
                _ => None,
            }
        })
    }

    fn is_buffer_block(&self, pointer: u32) -> bool {
        let mut pointers = self.all(op::TYPE_POINTER);
        let found = pointers.find_map(|operands| match *operands {
            [id, _, to] if id == pointer => Some(to),
            _ => None,
        });
        found.is_some_and(|to| self.is_decorated(to, decoration::BUFFER_BLOCK))
    }

    fn is_decorated(&self, id: u32, wanted: u32) -> bool {
        self.all(op::DECORATE).any(|operands| operands.starts_with(&[id, wanted]))
    }

    /// Returns the number that a decoration gives.
    fn decoration(&self, id: u32, wanted: u32) -> Option<u32> {
        self.all(op::DECORATE).find_map(|operands| match *operands {
            [target, kind, number] if target == id && kind == wanted => Some(number),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests;
