//! Reads packed events back, one at a time: memory is bounded by the allocations, whatever a column expands to.

use super::base64;
use super::data::Columns;
use crate::error::{Error, ErrorKind, Position};
use crate::step::Step;
use flate2::bufread::ZlibDecoder;
use std::io::{BufRead, BufReader, Cursor};

/// One column as numbers.
struct Numbers(BufReader<ZlibDecoder<Cursor<Vec<u8>>>>);

impl Numbers {
    fn new(column: &str) -> Result<Self, Error> {
        let packed = base64::decode(column).ok_or_else(damaged)?;
        Ok(Self(BufReader::new(ZlibDecoder::new(Cursor::new(packed)))))
    }

    fn byte(&mut self) -> Result<u8, Error> {
        let byte = self.0.fill_buf().map_err(|_| damaged())?.first().copied();
        self.0.consume(1);
        byte.ok_or_else(damaged)
    }

    /// Reads a number of seven bits a byte, low bits first.
    fn next(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(damaged());
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(damaged())
    }
}

fn damaged() -> Error {
    Error::new(Position::Input, ErrorKind::Malformed("report: its packed events are damaged"))
}

/// The events of a report as steps; an error ends them.
pub(crate) struct Unpacked {
    left: u64,
    time_us: u64,
    kinds: Numbers,
    steps: Numbers,
    sizes: Numbers,
    labels: Numbers,
    backs: Numbers,
    blocks: Numbers,
    /// Size and label of every allocation so far.
    made: Vec<(u64, u32)>,
    /// Bytes of every block so far; 0 for addresses without memory.
    taken: Vec<u64>,
}

impl Columns {
    /// Returns the events as steps. Events past `limit` are refused.
    pub(crate) fn unpack(&self, limit: u64) -> Result<Unpacked, Error> {
        if self.count > limit {
            let kind = ErrorKind::OverLimit { what: "events of a report", limit };
            return Err(Error::new(Position::Input, kind));
        }
        Ok(Unpacked {
            left: self.count,
            time_us: 0,
            kinds: Numbers::new(&self.kinds)?,
            steps: Numbers::new(&self.steps)?,
            sizes: Numbers::new(&self.sizes)?,
            labels: Numbers::new(&self.labels)?,
            backs: Numbers::new(&self.backs)?,
            blocks: Numbers::new(&self.blocks)?,
            made: Vec::new(),
            taken: Vec::new(),
        })
    }
}

impl Unpacked {
    /// Reads one event; the kinds are those of [`Columns`]. Streams and offsets are not read: no step has them.
    fn event(&mut self) -> Result<(u64, Option<Step>), Error> {
        let kind = self.kinds.byte()?;
        self.time_us = self.time_us.saturating_add(self.steps.next()?);
        let step = match kind {
            0 => Some(self.allocation()?),
            1 => {
                let (size, label) = self.allocated()?;
                Some(Step::Free { size, label })
            }
            2 | 9 => {
                let bytes = if kind == 2 { self.sized()? } else { self.sized().map(|_| 0)? };
                self.taken.push(bytes);
                Some(Step::Take { bytes })
            }
            3 => {
                let block = usize::try_from(self.blocks.next()?).ok();
                let bytes = block.and_then(|block| self.taken.get(block)).copied();
                Some(Step::Return { bytes: bytes.ok_or_else(damaged)? })
            }
            4 => Some(Step::Fail { size: self.sizes.next()? }),
            5 => {
                self.blocks.next()?;
                self.allocated().map(|_| None)?
            }
            6 => self.allocated().map(|_| None)?,
            10..=12 => {
                self.sizes.next()?;
                self.blocks.next().map(|_| None)?
            }
            7 => Some(Step::Take { bytes: self.sized()? }),
            8 => Some(Step::Return { bytes: self.sized()? }),
            _ => return Err(damaged()),
        };
        Ok((self.time_us, step))
    }

    fn allocation(&mut self) -> Result<Step, Error> {
        let size = self.sizes.next()?;
        let label = u32::try_from(self.labels.next()?).map_err(|_| damaged())?;
        self.blocks.next()?;
        self.made.push((size, label));
        Ok(Step::Allocate { size, label })
    }

    /// Reads the bytes of something that is of a heap.
    fn sized(&mut self) -> Result<u64, Error> {
        self.blocks.next()?;
        self.sizes.next()
    }

    /// Reads a reference to an allocation.
    fn allocated(&mut self) -> Result<(u64, u32), Error> {
        let back = usize::try_from(self.backs.next()?).map_err(|_| damaged())?;
        let at = self.made.len().checked_sub(back).ok_or_else(damaged)?;
        self.made.get(at).copied().ok_or_else(damaged)
    }
}

impl Iterator for Unpacked {
    type Item = Result<(u64, Step), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.left > 0 {
            self.left -= 1;
            match self.event() {
                Ok((_, None)) => {}
                Ok((time, Some(step))) => return Some(Ok((time, step))),
                Err(error) => {
                    self.left = 0;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{Numbers, base64};
    use crate::binary::put_varint;
    use flate2::{Compression, write::ZlibEncoder};
    use std::io::Write as _;

    fn column(bytes: &[u8]) -> Numbers {
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(bytes).expect("memory takes it");
        let packed = packed.finish().expect("memory takes it");
        match Numbers::new(&base64::encode(&packed)) {
            Ok(numbers) => numbers,
            Err(error) => panic!("just packed: {error}"),
        }
    }

    #[test]
    fn numbers_of_every_length_are_read_and_longer_ones_refused() {
        let (mut bytes, wanted) = (Vec::new(), (0..64).map(|shift| u64::MAX >> shift));
        wanted.clone().for_each(|number| put_varint(&mut bytes, number));
        let mut numbers = column(&bytes);
        wanted.for_each(|number| assert_eq!(numbers.next().ok(), Some(number)));
        assert!(numbers.next().is_err(), "there are no more");
        let nine = [0x80; 9];
        assert_eq!(column(&[&nine[..], &[1]].concat()).next().ok(), Some(1 << 63));
        for end in [&[2][..], &[0x81, 0], &[]] {
            assert!(column(&[&nine[..], end].concat()).next().is_err(), "{end:?}");
        }
    }
}
