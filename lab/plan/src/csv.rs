//! Reads the CSV of MiniMalloc: one buffer a line, columns named by the first line.
//!
//! `id`, `lower`, `upper` and `size` are required, in any order; `alignment`, `gaps`, `hint`, `fixed`, `alias`, `regions`
//! and `offset` are optional. A buffer must lie at its `fixed` offset, uses the bytes of the buffers whose ids are in
//! `alias`, and may live in the regions whose numbers, from 0, are in `regions`, with spaces between them; in all of them when
//! there are none.
//! Times are half-open, `[lower, upper)`. MiniMalloc's older names are read too: `buffer` and `buffer_id`, `start` and
//! `begin`, and `end`. An `end` is the last tick, so it is one less than `upper`, and so are the ends of gaps beside it.
//! Gaps are written `4-7 9-12`; a gap that still uses a window of the bytes (`4-7@0:16`) is refused, because the planner has no
//! such buffers. An `offset`, as MiniMalloc's own results have it, is kept apart: it is a plan, not a wish.

use crate::{Buffer, Interval, Problem, Region, RegionSet};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// A problem with the names of its buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The problem, with one region; a reader who knows of more adds them.
    pub problem: Problem,
    /// The name of each buffer.
    pub names: Vec<String>,
    /// The offset of each buffer, where the file has one.
    pub offsets: Vec<Option<u64>>,
    /// The region of that offset, where the file has one.
    pub regions: Vec<Option<usize>>,
}

impl Table {
    /// Returns the table of a problem whose buffers have no places yet.
    #[must_use]
    pub fn unplaced(problem: Problem, names: Vec<String>) -> Self {
        let (offsets, regions) = (alloc::vec![None; names.len()], alloc::vec![None; names.len()]);
        Self { problem, names, offsets, regions }
    }
}

/// Error in a file, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvError {
    /// Line, from 1.
    pub line: usize,
    /// The error.
    pub kind: CsvErrorKind,
}

/// Kinds of errors in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CsvErrorKind {
    /// The file is empty: it needs a line that names the columns.
    NoHeader,
    /// A required column is missing: add it.
    MissingColumn(&'static str),
    /// A column is not known: remove or rename it.
    UnknownColumn(String),
    /// A column is named twice: remove one.
    DuplicateColumn(String),
    /// A line has another number of fields than the first.
    FieldCount {
        /// Fields of the first line.
        expected: usize,
        /// Fields of this line.
        found: usize,
    },
    /// A field is not a whole number from 0 to 2^64 - 1.
    Number {
        /// The column.
        column: &'static str,
        /// The field.
        field: String,
    },
    /// A lifetime is empty or reversed.
    Lifetime {
        /// Its start.
        lower: u64,
        /// Its end.
        upper: u64,
    },
    /// A name was used before.
    DuplicateId(String),
    /// A name is empty.
    EmptyId,
    /// An alignment is zero.
    ZeroAlignment,
    /// A buffer is said to use the bytes of one that the file does not have.
    UnknownAlias(String),
    /// A gap is malformed, out of order, or outside the lifetime.
    Gap(String),
    /// A region is not a number from 0 to 63.
    Region(String),
}

impl fmt::Display for CsvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.kind {
            CsvErrorKind::NoHeader => {
                write!(f, "the file is empty; start it with id,lower,upper,size")
            }
            CsvErrorKind::MissingColumn(name) => write!(f, "the column {name} is missing; add it"),
            CsvErrorKind::UnknownColumn(name) => {
                write!(f, "the column {name:?} is not known; remove or rename it")
            }
            CsvErrorKind::DuplicateColumn(name) => {
                write!(f, "the column {name:?} is there twice; remove one")
            }
            CsvErrorKind::FieldCount { expected, found } => {
                write!(f, "{found} fields, but the first line has {expected}; make them agree")
            }
            CsvErrorKind::Number { column, field } => {
                write!(
                    f,
                    "{column} is {field:?}; write a whole number from 0 to 18446744073709551615"
                )
            }
            CsvErrorKind::Lifetime { lower, upper } => {
                write!(f, "lower {lower} is not below upper {upper}; swap them or drop the line")
            }
            CsvErrorKind::DuplicateId(id) => write!(f, "the id {id:?} was used before; rename one"),
            CsvErrorKind::EmptyId => write!(f, "the id is empty; name the buffer"),
            CsvErrorKind::ZeroAlignment => write!(f, "the alignment is 0; use 1 for none"),
            other => other.fmt_reference(f),
        }
    }
}

impl CsvErrorKind {
    /// Writes the errors of fields that name something: other buffers, times, regions.
    fn fmt_reference(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownAlias(id) => {
                write!(
                    f,
                    "no buffer has the id {id:?}; write ids in alias, with spaces between them"
                )
            }
            Self::Gap(gap) => {
                write!(
                    f,
                    "the gap {gap:?} is malformed, out of order or outside the lifetime; write start-end"
                )
            }
            Self::Region(field) => {
                write!(f, "regions has {field:?}; write numbers of regions, from 0 to 63")
            }
            _ => Ok(()),
        }
    }
}

impl core::error::Error for CsvError {}

/// A buffer is in a set of regions with numbers below this.
const MOST_REGIONS: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Id,
    Lower,
    Upper,
    End,
    Size,
    Alignment,
    Gaps,
    Hint,
    Fixed,
    Alias,
    Regions,
    Offset,
}

const COLUMNS: [(&str, Column); 16] = [
    ("id", Column::Id),
    ("buffer", Column::Id),
    ("buffer_id", Column::Id),
    ("lower", Column::Lower),
    ("start", Column::Lower),
    ("begin", Column::Lower),
    ("upper", Column::Upper),
    ("end", Column::End),
    ("size", Column::Size),
    ("alignment", Column::Alignment),
    ("gaps", Column::Gaps),
    ("hint", Column::Hint),
    ("fixed", Column::Fixed),
    ("alias", Column::Alias),
    ("regions", Column::Regions),
    ("offset", Column::Offset),
];

/// Reads a table; the region gets the given capacity.
///
/// # Errors
/// The first line that is wrong, and why.
pub fn read(text: &str, capacity: Option<u64>) -> Result<Table, CsvError> {
    let mut lines =
        text.lines().enumerate().map(|(at, l)| (at + 1, l.trim())).filter(|(_, l)| !l.is_empty());
    let (line, header) = lines.next().ok_or(CsvError { line: 1, kind: CsvErrorKind::NoHeader })?;
    let columns =
        columns(header.trim_start_matches('\u{feff}')).map_err(|kind| CsvError { line, kind })?;
    let mut table = Table {
        problem: Problem::new(Region { capacity, ..Region::unbounded() }),
        names: Vec::new(),
        offsets: Vec::new(),
        regions: Vec::new(),
    };
    let mut seen = BTreeMap::new();
    let mut aliases = Vec::new();
    for (line, text) in lines {
        let row = row(text, &columns).map_err(|kind| CsvError { line, kind })?;
        let index = table.names.len();
        if seen.insert(row.name, index).is_some() {
            return Err(CsvError { line, kind: CsvErrorKind::DuplicateId(row.name.to_string()) });
        }
        aliases.extend(row.alias.split_ascii_whitespace().map(|other| (line, index, other)));
        table.names.push(row.name.to_string());
        table.offsets.push(row.offset);
        table.regions.push(None);
        table.problem.push(row.buffer);
    }
    for (line, index, name) in aliases {
        let unknown = || CsvError { line, kind: CsvErrorKind::UnknownAlias(name.to_string()) };
        let other = *seen.get(name).ok_or_else(unknown)?;
        table.problem.aliases.push((index, other));
    }
    Ok(table)
}

fn columns(header: &str) -> Result<Vec<Column>, CsvErrorKind> {
    let mut columns: Vec<Column> = Vec::new();
    for name in header.split(',').map(str::trim) {
        let known = COLUMNS.iter().find(|c| c.0.eq_ignore_ascii_case(name));
        let column = known.ok_or_else(|| CsvErrorKind::UnknownColumn(name.to_string()))?.1;
        let other = match column {
            Column::Upper => Column::End,
            Column::End => Column::Upper,
            same => same,
        };
        if columns.contains(&column) || columns.contains(&other) {
            return Err(CsvErrorKind::DuplicateColumn(name.to_string()));
        }
        columns.push(column);
    }
    let required = [
        ("id", Column::Id),
        ("lower", Column::Lower),
        ("upper", Column::Upper),
        ("size", Column::Size),
    ];
    let inclusive = columns.contains(&Column::End);
    let has = |column: Column| columns.contains(&column) || (column == Column::Upper && inclusive);
    match required.iter().find(|r| !has(r.1)) {
        Some((name, _)) => Err(CsvErrorKind::MissingColumn(name)),
        None => Ok(columns),
    }
}

struct Row<'a> {
    name: &'a str,
    buffer: Buffer,
    alias: &'a str,
    offset: Option<u64>,
}

fn row<'a>(text: &'a str, columns: &[Column]) -> Result<Row<'a>, CsvErrorKind> {
    let found = text.split(',').count();
    if found != columns.len() {
        return Err(CsvErrorKind::FieldCount { expected: columns.len(), found });
    }
    let buffer = Buffer::new(0, 0, 0);
    let mut row = Row { name: "", buffer, alias: "", offset: None };
    let behind = u64::from(columns.contains(&Column::End));
    for (column, field) in columns.iter().zip(text.split(',').map(str::trim)) {
        let buffer = &mut row.buffer;
        match column {
            Column::Id => row.name = field,
            Column::Lower => buffer.live.start = number("lower", field)?,
            Column::Upper => buffer.live.end = number("upper", field)?,
            Column::End => buffer.live.end = after("end", field, 1)?,
            Column::Size => buffer.size = number("size", field)?,
            Column::Alignment => buffer.align = optional("alignment", field)?.unwrap_or(1),
            Column::Gaps => buffer.gaps = gaps(field, behind)?,
            Column::Hint => buffer.hint = optional("hint", field)?,
            Column::Fixed => buffer.fixed = optional("fixed", field)?,
            Column::Alias => row.alias = field,
            Column::Regions => buffer.regions = regions(field)?,
            Column::Offset => row.offset = optional("offset", field)?,
        }
    }
    check(&row)?;
    Ok(row)
}

fn check(row: &Row<'_>) -> Result<(), CsvErrorKind> {
    let Interval { start: lower, end: upper } = row.buffer.live;
    if row.name.is_empty() {
        return Err(CsvErrorKind::EmptyId);
    }
    if lower >= upper {
        return Err(CsvErrorKind::Lifetime { lower, upper });
    }
    if row.buffer.align == 0 {
        return Err(CsvErrorKind::ZeroAlignment);
    }
    let mut at = lower;
    for gap in &row.buffer.gaps {
        if gap.start < at || gap.end > upper {
            return Err(CsvErrorKind::Gap(alloc::format!("{}-{}", gap.start, gap.end)));
        }
        at = gap.end;
    }
    Ok(())
}

fn number(column: &'static str, field: &str) -> Result<u64, CsvErrorKind> {
    let digits = !field.is_empty() && field.bytes().all(|b| b.is_ascii_digit());
    let parsed = field.parse().ok().filter(|_| digits);
    parsed.ok_or_else(|| CsvErrorKind::Number { column, field: field.to_string() })
}

/// Returns the number that is `more` behind the one in a field.
fn after(column: &'static str, field: &str, more: u64) -> Result<u64, CsvErrorKind> {
    let wrong = || CsvErrorKind::Number { column, field: field.to_string() };
    number(column, field)?.checked_add(more).ok_or_else(wrong)
}

/// Parses an optional number; an empty field, or -1, means none.
fn optional(column: &'static str, field: &str) -> Result<Option<u64>, CsvErrorKind> {
    if field.is_empty() || field == "-1" { Ok(None) } else { number(column, field).map(Some) }
}

/// Returns the number of a region.
fn region(field: &str) -> Result<usize, CsvErrorKind> {
    let wrong = || CsvErrorKind::Region(field.to_string());
    let number = number("regions", field).map_err(|_| wrong())?;
    usize::try_from(number).ok().filter(|&r| r < MOST_REGIONS).ok_or_else(wrong)
}

/// Returns the regions whose numbers are listed; all when none is.
fn regions(field: &str) -> Result<RegionSet, CsvErrorKind> {
    let mut set = None;
    for text in field.split_ascii_whitespace() {
        let region = region(text)?;
        set = Some(set.map_or(RegionSet::only(region), |set: RegionSet| set.and(region)));
    }
    Ok(set.unwrap_or(RegionSet::ALL))
}

/// Reads gaps whose ends are `behind` ticks before what follows them.
fn gaps(field: &str, behind: u64) -> Result<Vec<Interval>, CsvErrorKind> {
    let gap = |gap: &str| {
        let (start, end) = gap.split_once('-')?;
        let start = number("gaps", start).ok()?;
        let end = after("gaps", end, behind).ok()?;
        (start < end).then(|| Interval::new(start, end))
    };
    let wrong = |text: &str| CsvErrorKind::Gap(text.to_string());
    field.split_ascii_whitespace().map(|text| gap(text).ok_or_else(|| wrong(text))).collect()
}
