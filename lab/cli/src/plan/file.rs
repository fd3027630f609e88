//! The JSON file of `omniheap plan`: a problem, and its plan once there is one.
use core::fmt::Display;
use omniheap_cli::Failure;
use omniheap_plan::csv::Table;
use omniheap_plan::{
    Activation, Buffer, Choice, Copies, Flaw, Interval, Plan, Problem, Recompute, Region,
    RegionSet, Spot, Tradeoff, validate,
};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The only version that there is.
const VERSION: u32 = 1;
/// A buffer is in a set of regions with indices below this.
const MOST_REGIONS: usize = 64;

/// A whole file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    #[serde(default)]
    regions: Vec<RegionRow>,
    buffers: Vec<BufferRow>,
    /// Pairs of ids that never share a byte.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    separate: Vec<[String; 2]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    peak: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lower_bound: Option<u64>,
    /// The copy engines, for buffers that may be moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    copies: Option<CopiesRow>,
    /// Cost of the choices, and the least that any cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost_lower_bound: Option<u64>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct CopiesRow {
    turn: u64,
    bytes_per_tick: u64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RecomputeRow {
    cost: u64,
    #[serde(default)]
    reads: Vec<String>,
    #[serde(default)]
    scratch: u64,
}

/// Buffers that may be recomputed or moved, and how fast.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) activations: Vec<Activation>,
    pub(super) copies: Option<Copies>,
}

/// Returns the word for a choice.
pub(super) const fn word(choice: Choice) -> &'static str {
    match choice {
        Choice::Keep => "keep",
        Choice::Recompute => "recompute",
        Choice::Move => "move",
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RegionRow {
    #[serde(default)]
    capacity: Option<u64>,
    #[serde(default = "one")]
    alignment: u64,
    #[serde(default)]
    cost: u64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct BufferRow {
    id: String,
    lower: u64,
    upper: u64,
    size: u64,
    #[serde(default = "one")]
    alignment: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<[u64; 2]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fixed: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<u64>,
    /// Regions that it may live in; all when they are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    regions: Option<Vec<usize>>,
    /// Buffers that use the same bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    alias: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spill_cost: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    region: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    /// Between the last use in the forward pass and the first in the backward pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idle: Option<[u64; 2]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recompute: Option<RecomputeRow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    move_cost: Option<u64>,
    /// The result for a buffer that has an idle span.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    choice: Option<String>,
}

const fn one() -> u64 {
    1
}

/// Returns whether a text is meant to be JSON.
pub(super) fn is_json(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// Reads a problem, with the plan if the file has one, and what may be changed about the program.
pub(super) fn read(text: &str) -> Result<(Table, Program), String> {
    let file: File = serde_json::from_str(text)
        .map_err(|error| format!("{error}; docs/planning.md says what a problem has"))?;
    if file.version != VERSION {
        return Err(format!("version {} is not known; write version {VERSION}", file.version));
    }
    let mut ids = HashMap::new();
    for (index, row) in file.buffers.iter().enumerate() {
        if ids.insert(row.id.clone(), index).is_some() {
            return Err(format!("the id {:?} was used before; rename one", row.id));
        }
    }
    let named = |id: &String| {
        let index = ids.get(id).copied();
        index.ok_or_else(|| format!("no buffer has the id {id:?}; name one that is in the file"))
    };
    let region = |r: &RegionRow| Region { capacity: r.capacity, align: r.alignment, cost: r.cost };
    let mut problem = Problem::new(Region::unbounded());
    if !file.regions.is_empty() {
        problem.regions = file.regions.iter().map(region).collect();
    }
    for (index, row) in file.buffers.iter().enumerate() {
        problem.push(buffer(row, problem.regions.len())?);
        for other in &row.alias {
            problem.aliases.push((index, named(other)?));
        }
    }
    for [a, b] in &file.separate {
        problem.separate.push((named(a)?, named(b)?));
    }
    let program = program(&file, named)?;
    let offsets = file.buffers.iter().map(|row| row.offset).collect();
    let regions = file.buffers.iter().map(|row| row.region).collect();
    let names = file.buffers.into_iter().map(|row| row.id).collect();
    Ok((Table { problem, names, offsets, regions }, program))
}

/// Returns the buffers that have an idle span.
fn program(
    file: &File,
    named: impl Fn(&String) -> Result<usize, String>,
) -> Result<Program, String> {
    let rows = file.buffers.iter().enumerate();
    let idle = rows.filter_map(|(buffer, row)| row.idle.map(|idle| (buffer, row, idle)));
    let place: HashMap<usize, usize> =
        idle.clone().enumerate().map(|(place, (buffer, ..))| (buffer, place)).collect();
    let saved = |id: &String| {
        let known = place.get(&named(id)?).copied();
        known.ok_or_else(|| {
            format!("buffer {id:?} is read and always there; leave it out of `reads`")
        })
    };
    let mut activations = Vec::with_capacity(place.len());
    for (buffer, row, idle) in idle {
        let recompute = match &row.recompute {
            Some(made) => {
                let reads = made.reads.iter().map(saved).collect::<Result<_, _>>()?;
                Some(Recompute { cost: made.cost, reads, scratch: made.scratch })
            }
            None => None,
        };
        let idle = Interval::new(idle[0], idle[1]);
        activations.push(Activation { buffer, idle, recompute, move_cost: row.move_cost });
    }
    let copies = file.copies.as_ref();
    let copies = copies.map(|c| Copies { turn: c.turn, bytes_per_tick: c.bytes_per_tick });
    Ok(Program { activations, copies })
}

fn buffer(row: &BufferRow, regions: usize) -> Result<Buffer, String> {
    let mut buffer = Buffer::new(row.size, row.lower, row.upper).align(row.alignment);
    buffer.gaps = row.gaps.iter().map(|g| Interval::new(g[0], g[1])).collect();
    (buffer.fixed, buffer.hint, buffer.spill_cost) = (row.fixed, row.hint, row.spill_cost);
    if let Some(allowed) = &row.regions {
        if let Some(unknown) = allowed.iter().find(|r| **r >= regions) {
            let id = &row.id;
            return Err(format!("buffer {id:?} names region {unknown}, but there are {regions}"));
        }
        let none = RegionSet::only(MOST_REGIONS);
        buffer.regions = allowed.iter().fold(none, |set, &r| set.and(r));
    }
    Ok(buffer)
}

/// Writes the program that some choices make, with its plan.
pub(super) fn write_traded(
    table: &Table,
    program: &Program,
    traded: &Tradeoff,
) -> Result<String, Failure> {
    let mut file = file(table, &traded.plan);
    for (each, &choice) in program.activations.iter().zip(&traded.choices) {
        file.buffers[each.buffer].choice = Some(word(choice).to_owned());
    }
    (file.cost, file.cost_lower_bound) = (Some(traded.cost), Some(traded.lower_bound));
    text(&file)
}

/// Writes a problem with its plan.
pub(super) fn write(table: &Table, plan: &Plan) -> Result<String, Failure> {
    text(&file(table, plan))
}

fn text(file: &File) -> Result<String, Failure> {
    let wrong = |error: serde_json::Error| Failure::failed(format!("cannot write JSON: {error}"));
    serde_json::to_string(file).map(|text| text + "\n").map_err(wrong)
}

fn file(table: &Table, plan: &Plan) -> File {
    let problem = &table.problem;
    let name = |&(a, b): &(usize, usize)| [table.names[a].clone(), table.names[b].clone()];
    let mut buffers: Vec<BufferRow> =
        (0..problem.buffers.len()).map(|i| row(table, plan.spots[i], i)).collect();
    for &(a, b) in &problem.aliases {
        buffers[a].alias.push(table.names[b].clone());
    }
    let region = |r: &Region| RegionRow { capacity: r.capacity, alignment: r.align, cost: r.cost };
    File {
        version: VERSION,
        regions: problem.regions.iter().map(region).collect(),
        buffers,
        separate: problem.separate.iter().map(name).collect(),
        peak: Some(plan.peak()),
        lower_bound: Some(plan.lower_bound()),
        copies: None,
        cost: None,
        cost_lower_bound: None,
    }
}

fn row(table: &Table, spot: Spot, index: usize) -> BufferRow {
    let buffer = &table.problem.buffers[index];
    let all = table.problem.regions.len();
    let allowed: Vec<usize> = (0..all).filter(|&r| buffer.regions.contains(r)).collect();
    BufferRow {
        id: table.names[index].clone(),
        lower: buffer.live.start,
        upper: buffer.live.end,
        size: buffer.size,
        alignment: buffer.align,
        gaps: buffer.gaps.iter().map(|g| [g.start, g.end]).collect(),
        fixed: buffer.fixed,
        hint: buffer.hint,
        regions: (allowed.len() < all).then_some(allowed),
        alias: Vec::new(),
        spill_cost: buffer.spill_cost,
        region: Some(spot.region),
        offset: Some(spot.offset),
        idle: None,
        recompute: None,
        move_cost: None,
        choice: None,
    }
}

/// Checks the plan of a file, and says what it needs: the highest end in any region.
pub(super) fn check(table: &Table, file: &dyn Display) -> Result<u64, Failure> {
    let mut spots = Vec::with_capacity(table.offsets.len());
    for (index, offset) in table.offsets.iter().enumerate() {
        let Some(offset) = *offset else {
            let id = &table.names[index];
            let line = format!("{file}: buffer {id:?} has no offset; plan the file first");
            return Err(Failure::input(line));
        };
        spots.push(Spot { region: table.regions[index].unwrap_or(0), offset });
    }
    let flawed =
        |flaw| Failure::failed(format!("{file}: the plan is wrong: {}", name(table, flaw)));
    validate(&table.problem, &spots).map_err(flawed)?;
    let needed = table.problem.buffers.iter().zip(&spots).filter(|(b, _)| b.needs_bytes());
    Ok(needed.map(|(b, spot)| spot.offset + b.size).max().unwrap_or(0))
}

/// Returns the text of a flaw, with ids.
fn name(table: &Table, flaw: Flaw) -> String {
    let id = |buffer: usize| table.names.get(buffer).map_or("", String::as_str);
    let ids = match flaw {
        Flaw::Region { buffer }
        | Flaw::Align { buffer }
        | Flaw::Fixed { buffer }
        | Flaw::Capacity { buffer } => format!("{:?}", id(buffer)),
        Flaw::Alias { a, b } | Flaw::Overlap { a, b } => format!("{:?} and {:?}", id(a), id(b)),
        _ => return flaw.to_string(),
    };
    format!("{flaw} (ids {ids})")
}
