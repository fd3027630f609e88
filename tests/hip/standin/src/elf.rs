//! Code objects: AMD's ELF files, read into an image that can be copied to a device. Every offset is checked.

/// `EM_AMDGPU`
const MACHINE: u16 = 224;
const LOAD: u32 = 1;
const RELA: u32 = 4;
const DYNSYM: u32 = 11;
const ALLOCATED: u64 = 2;
/// `R_AMDGPU_ABS64`
const ABSOLUTE: u64 = 3;
/// `R_AMDGPU_RELATIVE64`
const RELATIVE: u64 = 13;

/// A symbol of a code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    /// Offset in the image; 0 when it is defined elsewhere.
    pub(crate) value: u64,
    pub(crate) size: u64,
}

/// A word of the image that depends on where it is loaded.
#[derive(Clone, Copy, Debug)]
struct Relocation {
    offset: u64,
    kind: u64,
    symbol: usize,
    addend: u64,
}

/// A code object, ready to be placed.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) bytes: Vec<u8>,
    pub(crate) symbols: Vec<Symbol>,
    relocations: Vec<Relocation>,
}

/// Reason why a file is not a code object.
pub(crate) type Wrong = &'static str;

/// Bytes that are read at offsets, never past their end.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn part(self, offset: u64, size: u64) -> Result<&'a [u8], Wrong> {
        let start = usize::try_from(offset).map_err(|_| "offset too large")?;
        let end = start
            .checked_add(usize::try_from(size).map_err(|_| "size too large")?)
            .ok_or("range too large")?;
        self.0.get(start..end).ok_or("truncated")
    }

    /// Reads the number of `N` bytes that is the field at `offset` of the record at `base`.
    fn number<const N: usize>(self, base: u64, offset: u64) -> Result<u64, Wrong> {
        let mut bytes = [0; 8];
        let at = base.checked_add(offset).ok_or("offset too large")?;
        bytes[..N].copy_from_slice(self.part(at, N as u64)?);
        Ok(u64::from_le_bytes(bytes))
    }

    fn text(self, offset: u64) -> Result<String, Wrong> {
        let start = usize::try_from(offset).map_err(|_| "offset too large")?;
        let rest = self.0.get(start..).ok_or("truncated")?;
        let end = rest.iter().position(|&byte| byte == 0).ok_or("unterminated name")?;
        Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
    }
}

/// A section: its kind, flags, place in the file, and the section it refers to.
#[derive(Clone, Copy)]
struct Section {
    kind: u64,
    flags: u64,
    offset: u64,
    size: u64,
    link: u64,
}

impl Section {
    /// Returns the position of the 24 bytes of an entry: symbols and relocations have the same size.
    fn entry(self, index: u64) -> Result<u64, Wrong> {
        index
            .checked_mul(24)
            .and_then(|offset| self.offset.checked_add(offset))
            .ok_or("offset too large")
    }
}

impl Image {
    /// Reads a code object.
    pub(crate) fn read(file: &[u8]) -> Result<Self, Wrong> {
        let file = Bytes(file);
        if file.part(0, 5)? != b"\x7fELF\x02" || file.number::<2>(0, 18)? != u64::from(MACHINE) {
            return Err("not a 64-bit AMD code object");
        }
        let sections = sections(file)?;
        let dynamic = sections
            .iter()
            .find(|section| section.kind == u64::from(DYNSYM))
            .ok_or("no symbols")?;
        let names = sections
            .get(usize::try_from(dynamic.link).map_err(|_| "bad link")?)
            .ok_or("no symbol names")?;
        let mut relocations = Vec::new();
        for section in sections
            .iter()
            .filter(|section| section.kind == u64::from(RELA) && section.flags & ALLOCATED != 0)
        {
            for entry in 0..section.size / 24 {
                relocations.push(relocation(file, section.entry(entry)?)?);
            }
        }
        let symbols =
            (0..dynamic.size / 24).map(|entry| symbol(file, dynamic.entry(entry)?, names.offset));
        Ok(Self { bytes: load(file)?, symbols: symbols.collect::<Result<_, _>>()?, relocations })
    }

    /// Fills in the words that depend on `base`, where the image will be; `defined` knows symbols from elsewhere.
    pub(crate) fn place(
        &mut self,
        base: u64,
        defined: impl Fn(&str) -> Option<u64>,
    ) -> Result<(), Wrong> {
        for relocation in &self.relocations {
            let value = match relocation.kind {
                RELATIVE => base.wrapping_add(relocation.addend),
                ABSOLUTE => {
                    let symbol =
                        self.symbols.get(relocation.symbol).ok_or("relocation without symbol")?;
                    let here = (symbol.value != 0).then(|| base.wrapping_add(symbol.value));
                    here.or_else(|| defined(&symbol.name))
                        .ok_or("undefined symbol")?
                        .wrapping_add(relocation.addend)
                }
                _ => return Err("unknown relocation"),
            };
            let start = usize::try_from(relocation.offset).map_err(|_| "offset too large")?;
            let word = start
                .checked_add(8)
                .and_then(|end| self.bytes.get_mut(start..end))
                .ok_or("truncated")?;
            word.copy_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }

    /// Reads a 32-bit word of the image.
    pub(crate) fn word(&self, offset: u64) -> Result<u32, Wrong> {
        let value = Bytes(&self.bytes).number::<4>(0, offset)?;
        u32::try_from(value).map_err(|_| "four bytes")
    }
}

fn sections(file: Bytes<'_>) -> Result<Vec<Section>, Wrong> {
    let (start, size, count) =
        (file.number::<8>(0, 40)?, file.number::<2>(0, 58)?, file.number::<2>(0, 60)?);
    let read = |index: u64| {
        let at = start.checked_add(index * size).ok_or("offset too large")?;
        Ok(Section {
            kind: file.number::<4>(at, 4)?,
            flags: file.number::<8>(at, 8)?,
            offset: file.number::<8>(at, 24)?,
            size: file.number::<8>(at, 32)?,
            link: file.number::<4>(at, 40)?,
        })
    };
    (0..count).map(read).collect()
}

fn symbol(file: Bytes<'_>, at: u64, names: u64) -> Result<Symbol, Wrong> {
    let name = names.checked_add(file.number::<4>(at, 0)?).ok_or("offset too large")?;
    Ok(Symbol {
        name: file.text(name)?,
        value: file.number::<8>(at, 8)?,
        size: file.number::<8>(at, 16)?,
    })
}

fn relocation(file: Bytes<'_>, at: u64) -> Result<Relocation, Wrong> {
    let info = file.number::<8>(at, 8)?;
    let symbol = usize::try_from(info >> 32).map_err(|_| "symbol too large")?;
    let (offset, addend) = (file.number::<8>(at, 0)?, file.number::<8>(at, 16)?);
    Ok(Relocation { offset, kind: info & 0xffff_ffff, symbol, addend })
}

/// Puts the loadable parts where they belong in one image.
fn load(file: Bytes<'_>) -> Result<Vec<u8>, Wrong> {
    let (start, size, count) =
        (file.number::<8>(0, 32)?, file.number::<2>(0, 54)?, file.number::<2>(0, 56)?);
    let mut image = Vec::new();
    for index in 0..count {
        let at = start.checked_add(index * size).ok_or("offset too large")?;
        if file.number::<4>(at, 0)? != u64::from(LOAD) {
            continue;
        }
        let (offset, address) = (file.number::<8>(at, 8)?, file.number::<8>(at, 16)?);
        let part = file.part(offset, file.number::<8>(at, 32)?)?;
        let end = address
            .checked_add(file.number::<8>(at, 40)?)
            .filter(|&end| end < 1 << 32)
            .ok_or("image too large")?;
        let (from, end) =
            (usize::try_from(address).map_err(|_| "")?, usize::try_from(end).map_err(|_| "")?);
        image.resize(end.max(image.len()), 0);
        image
            .get_mut(from..from + part.len())
            .ok_or("segment longer than its memory")?
            .copy_from_slice(part);
    }
    if image.is_empty() { Err("nothing to load") } else { Ok(image) }
}

#[cfg(test)]
mod tests {
    use super::Image;

    #[test]
    fn files_that_are_not_code_objects_are_refused() {
        let mut file = vec![0; 64];
        file[..5].copy_from_slice(b"\x7fELF\x02");
        for (bytes, why) in [
            (&b""[..], "truncated"),
            (b"#!/bin/sh", "not a 64-bit AMD code object"),
            (&file, "not a 64-bit AMD code object"),
        ] {
            assert_eq!(Image::read(bytes).unwrap_err(), why);
        }
        file[18] = 224;
        assert_eq!(Image::read(&file).unwrap_err(), "no symbols");
    }

    #[test]
    fn broken_offsets_never_panic() {
        // A header that points everywhere, with each field in turn set to extreme values.
        for field in 0..64 {
            for value in [1, 0x7f, 0xff] {
                let mut file = vec![value; 256];
                file[..5].copy_from_slice(b"\x7fELF\x02");
                file[18..20].copy_from_slice(&224_u16.to_le_bytes());
                file[field.max(20)] = 0;
                assert!(Image::read(&file).is_err());
            }
        }
    }
}
