//! safetensors: eight bytes of header length, a JSON header, and the tensors one behind the other.

use super::Source;
use crate::Dtype;
use crate::error::{ErrorKind, Fault};
use crate::tensor::{Name, Tensor, bytes_of};
use core::fmt;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use std::borrow::Cow;
use std::sync::Arc;
use std::thread;

/// The longest header, by the format's own rule.
const MAX_HEADER: u64 = 100_000_000;
const LENGTH_BYTES: u64 = 8;
/// Bytes of a header that are worth a thread.
const SHARE: usize = 128 << 10;
const MOST_THREADS: usize = 16;
/// Typical bytes of header per tensor.
const ENTRY: usize = 64;

/// A name, borrowed from the header unless it has escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    dtype: Cow<'a, str>,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// Parses the tensors of a header in order. Keeps duplicates, which a map would lose.
struct Header<'a> {
    text: &'a Arc<String>,
    /// First byte of the data.
    start: u64,
    /// Reason why an entry was refused.
    fault: &'a mut Option<Fault>,
}

impl<'de> DeserializeSeed<'de> for Header<'_> {
    type Value = Vec<Tensor>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Header<'_> {
    type Value = Vec<Tensor>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut tensors = Vec::with_capacity(self.text.len() / ENTRY);
        let mut last: Arc<[u64]> = [].into();
        while let Some(Key(name)) = map.next_key()? {
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let entry: Entry<'_> = map.next_value()?;
            let (dtype, offset, size) = check(&name, &entry, self.start).map_err(|fault| {
                *self.fault = Some(fault);
                A::Error::custom("refused")
            })?;
            // Most tensors have the shape of their neighbour.
            if *last != *entry.shape {
                last = entry.shape.into();
            }
            let (name, shape) = (Name::within(self.text, &name), Arc::clone(&last));
            tensors.push(Tensor { name, dtype, shape, file: 0, offset, size });
        }
        Ok(tensors)
    }
}

pub(super) fn read(source: &dyn Source) -> Result<Vec<Tensor>, Fault> {
    let mut length = [0; 8];
    source.read(0, &mut length)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER {
        return Err(Fault::at(0, ErrorKind::HeaderTooLong { length, limit: MAX_HEADER }));
    }
    super::inside(source, LENGTH_BYTES, length)?;
    let mut header = vec![0; usize::try_from(length).unwrap_or(0)];
    source.read(LENGTH_BYTES, &mut header)?;
    let text = String::from_utf8(header).map_err(|error| {
        let at = error.utf8_error().valid_up_to() as u64;
        Fault::at(LENGTH_BYTES + at, ErrorKind::NotUtf8)
    })?;
    let start = LENGTH_BYTES + length;
    let mut tensors = match in_shares(&text, start, threads(&text)) {
        Some(tensors) => tensors,
        None => parse(text, start)?,
    };
    tensors.sort_by_key(|tensor| (tensor.offset, tensor.size));
    check_cover(&tensors, start, source.size())?;
    Ok(tensors)
}

/// Returns how many threads a header is worth.
fn threads(text: &str) -> usize {
    match text.len() / SHARE {
        0 | 1 => 1,
        most => thread::available_parallelism().map_or(1, usize::from).min(most).min(MOST_THREADS),
    }
}

/// Parses a header with several threads. `None` where one is enough, or the system starts no more, or the header is not as simple as usual, or
/// damaged: [`parse`] says how.
fn in_shares(text: &str, start: u64, threads: usize) -> Option<Vec<Tensor>> {
    if threads < 2 {
        return None;
    }
    let shares = shares(text.trim_end().strip_prefix('{')?.strip_suffix('}')?, threads);
    let parse = |share: &str| parse(format!("{{{share}}}"), start).ok();
    let parsed: Option<Vec<_>> = thread::scope(|scope| {
        let start = |share| thread::Builder::new().spawn_scoped(scope, move || parse(share));
        let threads: Vec<_> = shares.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.ok()?.join().ok()?).collect()
    });
    let mut parsed = parsed?.into_iter();
    let mut tensors = parsed.next()?;
    tensors.reserve(parsed.as_slice().iter().map(Vec::len).sum());
    parsed.for_each(|mut share| tensors.append(&mut share));
    Some(tensors)
}

/// Cuts the entries of a header where one seems to end and the next to begin. Where that is wrong, because a name looks so, the text
/// before does not parse: what parses in shares means the same as a whole.
fn shares(entries: &str, count: usize) -> Vec<&str> {
    let (mut shares, mut rest) = (Vec::with_capacity(count), entries);
    for left in (2..=count).rev() {
        let near = rest.floor_char_boundary(rest.len() / left);
        let Some(found) = rest[near..].find(r#"},""#) else { break };
        let (share, next) = rest.split_at(near + found + 1);
        shares.push(share);
        rest = &next[1..];
    }
    shares.push(rest);
    shares
}

fn parse(text: String, start: u64) -> Result<Vec<Tensor>, Fault> {
    let (text, mut fault) = (Arc::new(text), None);
    let mut json = serde_json::Deserializer::from_str(&text);
    let header = Header { text: &text, start, fault: &mut fault };
    let parsed = header.deserialize(&mut json).and_then(|tensors| json.end().map(|()| tensors));
    parsed.map_err(|error| {
        let damaged = || Fault::at(LENGTH_BYTES, ErrorKind::Header(error.to_string()));
        fault.unwrap_or_else(damaged)
    })
}

/// Checks an entry. Returns the tensor's type, offset in the file, and size.
fn check(name: &str, entry: &Entry<'_>, start: u64) -> Result<(Dtype, u64, u64), Fault> {
    let Entry { dtype, shape, data_offsets: [begin, end] } = entry;
    let Some(dtype) = Dtype::from_safetensors(dtype) else {
        let (name, dtype) = (name.into(), dtype.as_ref().into());
        return Err(ErrorKind::UnknownDtype { name, dtype }.into());
    };
    let needs = bytes_of(name, dtype, shape)?;
    let Some(has) = end.checked_sub(*begin) else {
        return Err(ErrorKind::Backwards(name.into()).into());
    };
    if needs != has {
        return Err(ErrorKind::SizeMismatch { name: name.into(), needs, has }.into());
    }
    let overflow = || ErrorKind::Header("an offset exceeds 64 bits".into());
    start.checked_add(*end).ok_or_else(overflow)?;
    Ok((dtype, start + begin, has))
}

/// Refuses tensors that overlap, leave holes, or do not end where the file does.
fn check_cover(tensors: &[Tensor], start: u64, size: u64) -> Result<(), Fault> {
    let mut at = start;
    for tensor in tensors {
        if tensor.offset < at {
            return Err(Fault::at(tensor.offset, ErrorKind::Overlap(tensor.name.to_string())));
        }
        if tensor.offset > at {
            let (name, bytes) = (tensor.name.to_string(), tensor.offset - at);
            return Err(Fault::at(at, ErrorKind::Hole { name, bytes }));
        }
        at = tensor.end();
    }
    match size.checked_sub(at) {
        Some(0) => Ok(()),
        Some(bytes) => Err(Fault::at(at, ErrorKind::Trailing(bytes))),
        None => Err(Fault::at(size, ErrorKind::Truncated { needs: at, has: size })),
    }
}

#[cfg(test)]
mod tests {
    use super::{in_shares, parse};
    use crate::Tensor;
    use proptest::prelude::*;

    /// A header of one-byte tensors.
    fn header(names: &[String]) -> String {
        let entry = |(at, name): (usize, &String)| {
            let name = serde_json::to_string(name).expect("a text");
            format!(r#"{name}:{{"dtype":"U8","shape":[1],"data_offsets":[{at},{}]}}"#, at + 1)
        };
        let entries: Vec<_> = names.iter().enumerate().map(entry).collect();
        format!("{{{}}}  ", entries.join(","))
    }

    fn whole(text: &str) -> Vec<Tensor> {
        parse(text.into(), 0).expect("a header")
    }

    #[test]
    fn shares_are_what_the_whole_is() {
        let names: Vec<_> = (0..100).map(|at| format!("layers.{at}")).collect();
        let text = header(&names);
        assert_eq!(whole(&text).len(), 100);
        for threads in 2..9 {
            assert_eq!(in_shares(&text, 0, threads), Some(whole(&text)), "{threads}");
        }
    }

    #[test]
    fn what_does_not_parse_in_shares_is_left_to_one_thread() {
        // So long that the text is cut in a name, where one seems to begin.
        let names: Vec<_> = (0..100).map(|at| format!("{at:01000}}},")).collect();
        assert_eq!(in_shares(&header(&names), 0, 4), None);
        let good = header(&(0..100).map(|at| at.to_string()).collect::<Vec<_>>());
        assert_eq!(in_shares(&good.replace("},\"50\"", "},,\"50\""), 0, 4), None);
        assert_eq!(in_shares(&good.replace("U8", "Q9"), 0, 4), None);
    }

    proptest! {
        #[test]
        fn no_name_changes_what_a_header_means(
            names in proptest::collection::vec("[}{,\":\\\\ä0-9]{0,6}", 1..60), threads in 2..9_usize
        ) {
            let text = header(&names);
            let found = whole(&text);
            prop_assert!(found.iter().map(|tensor| tensor.name.as_str()).eq(&names));
            if let Some(found) = in_shares(&text, 0, threads) {
                prop_assert_eq!(found, whole(&text));
            }
        }
    }
}
