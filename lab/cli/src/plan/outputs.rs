//! The files that `omniheap plan` writes.
use super::arguments::Arguments;
use super::file;
use crate::text::Output;
use omniheap_cli::Failure;
use omniheap_cli::file::is_standard;
use omniheap_cli::output::{self, Format};
use omniheap_plan::csv::Table;
use omniheap_plan::{Plan, header, svg, validate};
use std::path::PathBuf;

/// Checks that no result overwrites another or what is read, and that standard output gets one at most.
pub(super) fn check_outputs(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let outputs: Vec<_> = arguments.outputs().into_iter().flatten().collect();
    let piped = outputs.iter().filter(|path| is_standard(path)).count();
    if piped + usize::from(format == Format::Json) > 1 {
        let line = "standard output has room for one result; write the others to files";
        return Err(Failure::input(line));
    }
    for (number, path) in outputs.iter().enumerate().filter(|(_, path)| !is_standard(path)) {
        let others = outputs[..number].iter().copied().chain([arguments.file.as_path()]);
        output::keep_apart(path, &others.map(Some).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Results that were asked for.
pub(super) struct Outputs {
    picture: Option<Output>,
    header: Option<Output>,
    pub(super) plan: Option<Output>,
}

impl Outputs {
    pub(super) fn open(arguments: &Arguments) -> Result<Self, Failure> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(Output::open).transpose();
        Ok(Self {
            picture: open(&arguments.svg)?,
            header: open(&arguments.header)?,
            plan: open(&arguments.plan)?,
        })
    }

    /// Checks the plan once more, and writes what was asked for.
    pub(super) fn write(self, table: &Table, plan: &Plan, name: &str) -> Result<(), Failure> {
        validate(&table.problem, &plan.spots)
            .map_err(|flaw| Failure::failed(format!("the plan is wrong: {flaw}; report this")))?;
        if let Some(output) = self.picture {
            output.write(&svg::draw(&table.problem, plan, &table.names))?;
        }
        if let Some(output) = self.plan {
            output.write(&file::write(table, plan)?)?;
        }
        match self.header {
            Some(output) => output.write(&header::write(&table.problem, plan, &table.names, name)),
            None => Ok(()),
        }
    }
}
