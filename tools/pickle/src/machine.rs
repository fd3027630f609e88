//! The stack machine: one pass over the opcodes, memory counted against a budget.

use crate::cell::{Cell, Value};
use crate::data::{Data, Dict, index_u32};
use crate::{CallResult, Failure, Keys, Refusal, Rules, op, tight};
use core::cmp::Ordering;

struct Machine<'a> {
    data: Data<'a>,
    at: usize,
    stack: Vec<Cell>,
    marks: Vec<usize>,
    memo: Vec<Cell>,
    /// Bytes that containers, stack and memo may take together.
    budget: usize,
    /// Bytes in lists, counted as they grow.
    list_bytes: usize,
    rules: Rules,
}

/// Reads the pickle in `input` and returns its one value with all it refers to.
///
/// # Errors
///
/// The first opcode that the rules refuse, or that does not fit what stands before it.
pub fn parse(input: &[u8], rules: Rules) -> Result<(Data<'_>, Cell), Failure> {
    let data = Data::new(input, rules.keys);
    // 2^34 bytes keep every table below 2^32 entries.
    let budget = input.len().saturating_mul(rules.expansion).saturating_add(1 << 16).min(1 << 34);
    let (stack, marks, memo) = (Vec::new(), Vec::new(), Vec::new());
    let mut machine = Machine { data, at: 0, stack, marks, memo, budget, list_bytes: 0, rules };
    match machine.run() {
        Ok(cell) => Ok((machine.data, cell)),
        Err(kind) => Err(Failure { at: machine.at, kind }),
    }
}

const BAD: Refusal = Refusal::Malformed;

impl<'a> Machine<'a> {
    fn run(&mut self) -> Result<Cell, Refusal> {
        loop {
            let start = self.at;
            let code = self.bytes(1)?[0];
            if code == op::STOP {
                let cell = self.pop()?;
                return if self.stack.is_empty() { Ok(cell) } else { Err(BAD) };
            }
            // The position of an error is its opcode, not what follows it.
            let outcome = self.step(code);
            if outcome.is_err() {
                self.at = start;
            }
            outcome?;
            self.check()?;
        }
    }

    fn check(&self) -> Result<(), Refusal> {
        let cells =
            self.stack.len() + self.memo.len() + self.data.values.len() + self.data.dicts.len();
        let used = cells * 8 + self.list_bytes;
        if used > self.budget {
            return Err(Refusal::OverLimit {
                what: "bytes of values for a pickle of this size",
                limit: self.budget as u64,
            });
        }
        Ok(())
    }

    fn step(&mut self, code: u8) -> Result<(), Refusal> {
        match code {
            op::PROTO => match self.bytes(1)?[0] {
                2..=5 => Ok(()),
                _ => Err(BAD),
            },
            op::FRAME => self.bytes(8).map(|_| ()),
            op::NONE | op::EMPTY_SET => self.push(Cell::OTHER),
            op::TRUE => self.push(Cell::int(1)),
            op::FALSE => self.push(Cell::int(0)),
            op::BINFLOAT => self.bytes(8).and_then(|_| self.push(Cell::OTHER)),
            op::BININT | op::BININT1 | op::BININT2 | op::LONG1 | op::LONG4 => self.number(code),
            op::SHORT_TEXT | op::TEXT | op::TEXT8 | op::SHORT_STRING | op::STRING => {
                self.string(code)
            }
            op::SHORT_BYTES | op::BYTES | op::BYTES8 => {
                self.string(code).map(|()| self.top_is_other())
            }
            op::BINGET | op::LONG_BINGET => self.recall(code),
            op::BINPUT | op::LONG_BINPUT | op::MEMOIZE => self.memoize(code),
            op::MARK => self.mark(),
            op::POP => self.pop().map(|_| ()),
            op::POP_MARK | op::ADD_ITEMS => {
                self.since_mark().map(|start| self.stack.truncate(start))
            }
            op::DUP => self.top().and_then(|cell| self.push(cell)),
            op::FROZEN_SET => {
                let start = self.since_mark()?;
                self.stack.truncate(start);
                self.push(Cell::OTHER)
            }
            _ => self.container(code),
        }
    }

    fn container(&mut self, code: u8) -> Result<(), Refusal> {
        match code {
            op::EMPTY_DICT => self.new_dict(),
            op::EMPTY_LIST | op::EMPTY_TUPLE => self.new_list(self.stack.len()),
            op::TUPLE1 | op::TUPLE2 | op::TUPLE3 => {
                let count = usize::from(code - op::TUPLE1) + 1;
                let start = self.stack.len().checked_sub(count).ok_or(BAD)?;
                self.new_list(start)
            }
            op::TUPLE | op::LIST => {
                let start = self.since_mark()?;
                self.new_list(start)
            }
            op::DICT => {
                let pairs = self.marked()?;
                self.new_dict()?;
                self.set(&pairs)
            }
            op::APPEND => {
                let item = self.pop()?;
                self.append(&[item])
            }
            op::APPENDS => {
                let items = self.marked()?;
                self.append(&items)
            }
            op::SETITEM => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(&[key, value])
            }
            op::SETITEMS => {
                let pairs = self.marked()?;
                self.set(&pairs)
            }
            op::GLOBAL | op::STACK_GLOBAL => self.global(code),
            op::REDUCE => self.reduce(),
            op::BUILD => self.build(),
            op::PERSISTENT => self.persistent(),
            code if op::RUNS.contains(&code) => Err(Refusal::Forbidden(None)),
            _ => Err(BAD),
        }
    }

    /// Pushes a global that the rules list.
    fn global(&mut self, code: u8) -> Result<(), Refusal> {
        let (module, name) = if code == op::GLOBAL {
            (self.line()?, self.line()?)
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            let text = |cell| self.data.text(cell).ok_or(BAD);
            (text(module)?, text(name)?)
        };
        let is_it = |global: &crate::Global| global.module == module && global.name == name;
        match self.rules.globals.iter().position(is_it) {
            Some(index) => self.push(Cell::global(index_u32(index))),
            None => Err(Refusal::Forbidden(Some(format!("{module}.{name}")))),
        }
    }

    /// Returns the text up to the next line feed.
    fn line(&mut self) -> Result<&'a str, Refusal> {
        let rest = &self.data.input[self.at..];
        let length = rest.iter().position(|&byte| byte == b'\n').ok_or(Refusal::Truncated)?;
        self.at += length + 1;
        core::str::from_utf8(&rest[..length]).map_err(|_| BAD)
    }

    /// Notes the call of a listed global, without making it.
    fn reduce(&mut self) -> Result<(), Refusal> {
        let (arguments, callee) = (self.pop()?, self.pop()?);
        let Value::Global(index) = callee.value() else { return Err(Refusal::Forbidden(None)) };
        let items = self.data.list(arguments).ok_or(BAD)?;
        let global = self.rules.globals[index as usize];
        match global.result {
            CallResult::Dict if items.is_empty() => self.new_dict(),
            CallResult::Call => {
                let items = [&[callee], items].concat();
                let index = self.add_list(items);
                self.push(Cell::call(index))
            }
            _ => Err(Refusal::Forbidden(Some(format!("{}.{}", global.module, global.name)))),
        }
    }

    /// Drops the attributes of a dictionary; nothing else may have any.
    fn build(&mut self) -> Result<(), Refusal> {
        self.pop()?;
        match self.top()?.value() {
            Value::Pairs(_) => Ok(()),
            _ => Err(Refusal::Forbidden(None)),
        }
    }

    fn persistent(&mut self) -> Result<(), Refusal> {
        if self.rules.globals.is_empty() {
            return Err(Refusal::Forbidden(None));
        }
        match self.pop()?.value() {
            Value::List(index) => self.push(Cell::persistent(index)),
            _ => Err(BAD),
        }
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Refusal> {
        let end = self.at.checked_add(count).ok_or(Refusal::Truncated)?;
        let bytes = self.data.input.get(self.at..end).ok_or(Refusal::Truncated)?;
        self.at = end;
        Ok(bytes)
    }

    /// Returns an unsigned number of `width` bytes, little-endian.
    fn unsigned(&mut self, width: usize) -> Result<usize, Refusal> {
        let value = self
            .bytes(width)?
            .iter()
            .rev()
            .fold(0_u64, |value, &byte| value << 8 | u64::from(byte));
        usize::try_from(value).map_err(|_| BAD)
    }

    fn number(&mut self, code: u8) -> Result<(), Refusal> {
        let width = match code {
            op::BININT => 4,
            op::BININT1 => 1,
            op::BININT2 => 2,
            op::LONG1 => self.unsigned(1)?,
            _ => self.unsigned(4)?,
        };
        let signed = !matches!(code, op::BININT1 | op::BININT2);
        let bytes = self.bytes(width)?;
        let negative = signed && bytes.last().is_some_and(|byte| byte >> 7 == 1);
        let fill = if negative { u64::MAX } else { 0 };
        if width > 8 {
            return self.push(Cell::OTHER);
        }
        let value = bytes.iter().rev().fold(fill, |value, &byte| value << 8 | u64::from(byte));
        // Eight bytes without a sign bit have a ninth byte, so this reading is exact.
        self.push(Cell::int(value.cast_signed()))
    }

    fn string(&mut self, code: u8) -> Result<(), Refusal> {
        let length = match code {
            op::SHORT_TEXT | op::SHORT_BYTES | op::SHORT_STRING => self.unsigned(1)?,
            op::TEXT | op::BYTES | op::STRING => self.unsigned(4)?,
            _ => self.unsigned(8)?,
        };
        let start = self.at;
        self.bytes(length)?;
        self.push(Cell::text(start, length))
    }

    fn top_is_other(&mut self) {
        if let Some(top) = self.stack.last_mut() {
            *top = Cell::OTHER;
        }
    }

    fn recall(&mut self, code: u8) -> Result<(), Refusal> {
        let index = self.unsigned(if code == op::BINGET { 1 } else { 4 })?;
        let cell = *self.memo.get(index).ok_or(BAD)?;
        self.push(cell)
    }

    fn memoize(&mut self, code: u8) -> Result<(), Refusal> {
        let index = match code {
            op::BINPUT => self.unsigned(1)?,
            op::LONG_BINPUT => self.unsigned(4)?,
            _ => self.memo.len(),
        };
        let top = self.top()?;
        // Every pickler numbers its memo from zero up.
        match index.cmp(&self.memo.len()) {
            Ordering::Less => self.memo[index] = top,
            Ordering::Equal => tight::push(&mut self.memo, top),
            Ordering::Greater => return Err(BAD),
        }
        Ok(())
    }

    fn push(&mut self, cell: Cell) -> Result<(), Refusal> {
        tight::push(&mut self.stack, cell);
        Ok(())
    }

    fn top(&self) -> Result<Cell, Refusal> {
        self.stack.last().copied().filter(|_| self.stack.len() > self.floor()).ok_or(BAD)
    }

    fn pop(&mut self) -> Result<Cell, Refusal> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// Cells below this belong to an enclosing mark.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn mark(&mut self) -> Result<(), Refusal> {
        if self.marks.len() >= self.rules.depth {
            return Err(Refusal::OverLimit {
                what: "containers inside containers",
                limit: self.rules.depth as u64,
            });
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn since_mark(&mut self) -> Result<usize, Refusal> {
        self.marks.pop().ok_or(BAD)
    }

    /// Takes the cells above the last mark.
    fn marked(&mut self) -> Result<Vec<Cell>, Refusal> {
        let start = self.since_mark()?;
        Ok(self.stack.split_off(start))
    }

    fn new_dict(&mut self) -> Result<(), Refusal> {
        if matches!(self.rules.keys, Keys::All) {
            let index = self.add_list(Vec::new());
            return self.push(Cell::pairs(index));
        }
        let index = index_u32(self.data.dicts.len());
        tight::push(&mut self.data.dicts, Dict::default());
        self.push(Cell::dict(index))
    }

    /// Makes a list of the cells from `start` on.
    fn new_list(&mut self, start: usize) -> Result<(), Refusal> {
        if start < self.floor() {
            return Err(BAD);
        }
        let items = self.stack.split_off(start);
        let index = self.add_list(items);
        self.push(Cell::list(index))
    }

    fn add_list(&mut self, items: Vec<Cell>) -> u32 {
        let index = index_u32(self.data.lists.len());
        self.list_bytes += size_of::<Vec<Cell>>() + items.len() * 8;
        tight::push(&mut self.data.lists, items);
        index
    }

    fn append(&mut self, items: &[Cell]) -> Result<(), Refusal> {
        match self.top()?.value() {
            Value::List(index) => {
                self.list_bytes += items.len() * 8;
                tight::extend(&mut self.data.lists[index as usize], items);
                Ok(())
            }
            _ => Err(BAD),
        }
    }

    fn set(&mut self, pairs: &[Cell]) -> Result<(), Refusal> {
        match self.top()?.value() {
            Value::Dict(index) if pairs.len().is_multiple_of(2) => {
                self.data.set_items(index, pairs);
                Ok(())
            }
            Value::Pairs(index) if pairs.len().is_multiple_of(2) => {
                self.list_bytes += pairs.len() * 8;
                tight::extend(&mut self.data.lists[index as usize], pairs);
                Ok(())
            }
            _ => Err(BAD),
        }
    }
}
