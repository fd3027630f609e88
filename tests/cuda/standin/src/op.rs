//! Pieces of work in streams and graphs, and their execution.

use core::ffi::c_void;
use std::sync::Arc;

use crate::code::Answer;
use crate::ffi::Word;
use crate::kernel::Launch;
use crate::life;
use crate::pool;
use crate::space::{self, Life};

/// A function of the program, and its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCall {
    pub(crate) function: extern "C" fn(*mut c_void),
    pub(crate) data: u64,
}

impl HostCall {
    pub(crate) fn run(&self) {
        (self.function)(Word::new(self.data).pointer());
    }
}

/// Rows of the same length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) to: u64,
    pub(crate) to_pitch: u64,
    pub(crate) from: u64,
    pub(crate) from_pitch: u64,
    pub(crate) width: u64,
    pub(crate) height: u64,
}

/// One piece of work.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Copy {
        to: u64,
        from: u64,
        size: u64,
    },
    Rows(Rows),
    /// Bytes that were taken from pageable memory of the program.
    Write {
        to: u64,
        bytes: Arc<[u8]>,
    },
    /// Rows of one value of one, two or four bytes.
    Set {
        rows: Rows,
        value: [u8; 4],
        size: u64,
    },
    Call(HostCall),
    Launch(Launch),
    /// Pool memory becomes usable.
    Claim(u64),
    /// Memory is freed.
    Release(u64),
    /// Memory of a graph is freed until the graph runs again.
    Rest(u64),
    Nothing,
}

impl Op {
    /// Lists the ranges that are known to be used before the work runs.
    pub(crate) fn uses(&self) -> Vec<(u64, u64)> {
        let rows =
            |rows: &Rows, at: u64, pitch| (at, rows.height.saturating_sub(1) * pitch + rows.width);
        match self {
            Self::Copy { to, from, size } => vec![(*to, *size), (*from, *size)],
            Self::Rows(all) => {
                vec![rows(all, all.to, all.to_pitch), rows(all, all.from, all.from_pitch)]
            }
            Self::Write { to, bytes } => vec![(*to, bytes.len() as u64)],
            Self::Set { rows: all, .. } => vec![rows(all, all.to, all.to_pitch)],
            _ => Vec::new(),
        }
    }

    pub(crate) fn run(&self) -> Answer {
        match self {
            Self::Copy { to, from, size } => space::copy(*to, *from, *size),
            Self::Rows(rows) => (0..rows.height).try_for_each(|row| {
                let (to, from) = (rows.to + row * rows.to_pitch, rows.from + row * rows.from_pitch);
                space::copy(to, from, rows.width)
            }),
            Self::Write { to, bytes } => space::write(*to, bytes),
            Self::Set { rows, value, size } => set(rows, *value, *size),
            Self::Call(call) => {
                life::call_back(|| call.run());
                Ok(())
            }
            Self::Launch(launch) => launch.run(),
            Self::Claim(base) => {
                space::set_life(*base, Life::Here);
                Ok(())
            }
            Self::Release(base) => {
                pool::release(*base);
                Ok(())
            }
            Self::Rest(base) => {
                space::set_life(*base, Life::Coming);
                Ok(())
            }
            Self::Nothing => Ok(()),
        }
    }
}

fn set(rows: &Rows, value: [u8; 4], size: u64) -> Answer {
    let value = &value[..usize::try_from(size).expect("four at most")];
    let is_plain = value.iter().all(|byte| *byte == value[0]);
    (0..rows.height).try_for_each(|row| {
        let to = rows.to + row * rows.to_pitch;
        if is_plain {
            return space::fill(to, value[0], rows.width);
        }
        let count = usize::try_from(rows.width / size).expect("a 64-bit machine");
        space::write(to, &value.repeat(count))
    })
}
