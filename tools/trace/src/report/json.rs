//! Reports as JSON files: written by programs, read back as untrusted input.

use super::data::ReportData;
use crate::error::{Error, ErrorKind, Position};
use serde::Deserialize;
use std::io::{self, Read, Write};

/// Bytes of a report that is read at most.
const MAX_BYTES: u64 = 1 << 30;

/// Writes `data` as JSON of the schema `docs/report.schema.json`.
///
/// # Errors
/// Those of `sink`.
pub fn write_json(data: &ReportData, mut sink: impl Write) -> io::Result<()> {
    write_to(data, &mut sink)
}

/// Writes without generics, so that it is compiled once, and here.
fn write_to(data: &ReportData, sink: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(&mut *sink, data).map_err(io::Error::other)?;
    sink.write_all(b"\n")?;
    sink.flush()
}

/// Reads a report, and checks that everything it points at is in it.
///
/// # Errors
/// [`ErrorKind::Io`] when it cannot be read, [`ErrorKind::OverLimit`] past 1 GiB, [`ErrorKind::Malformed`] when it is
/// no report of this version or names a label or moment that it does not have.
pub fn read_json(mut source: impl Read) -> Result<ReportData, Error> {
    read_from(&mut source)
}

/// Reads without generics, so that it is compiled once, and here.
fn read_from(source: &mut dyn Read) -> Result<ReportData, Error> {
    let failed = |kind| Error::new(Position::Input, kind);
    let mut text = Vec::new();
    source.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(|error| failed(error.into()))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(failed(ErrorKind::OverLimit { what: "bytes of a report", limit: MAX_BYTES }));
    }
    let malformed = |what| failed(ErrorKind::Malformed(what));
    // The version first: a report of another one differs in its fields, and would only be called malformed.
    let version: Version = serde_json::from_slice(&text)
        .map_err(|_| malformed("report: not JSON with a schema version"))?;
    if version.schema != ReportData::SCHEMA {
        return Err(malformed(
            "report: of another schema version; write it again with this version",
        ));
    }
    let data: ReportData =
        serde_json::from_slice(&text).map_err(|_| malformed("report: not JSON of its schema"))?;
    check(&data).map_err(malformed)?;
    Ok(data)
}

#[derive(Deserialize)]
struct Version {
    schema: u32,
}

fn check(data: &ReportData) -> Result<(), &'static str> {
    let earlier = |(at, label): (u32, &super::Label)| label.parent <= at;
    if !(0_u32..).zip(&data.labels).all(earlier) {
        return Err("report: a label below one that does not come before it");
    }
    let spans =
        data.moments.iter().flat_map(|moment| &moment.blocks).flat_map(|block| &block.spans);
    let blockers = data.out_of_memory.iter().flat_map(|each| &each.blockers);
    let mut labels = spans.map(|span| span.label).chain(blockers.map(|blocker| blocker.label));
    if labels.any(|label| label as usize > data.labels.len()) {
        return Err("report: a label that is not in it");
    }
    let passes = data.defragmentation.iter().flat_map(|pass| [pass.before, pass.after]);
    let mut moments = data.out_of_memory.iter().map(|each| each.moment).chain(passes).flatten();
    if moments.any(|moment| moment as usize >= data.moments.len()) {
        return Err("report: a moment that is not in it");
    }
    Ok(())
}
