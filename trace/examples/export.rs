//! Writes a trace for other tools: `cargo run -p omniheap-trace --example export -- TRACE OUT.{json,pickle,prom,csv,trace}`

use omniheap_trace::export::{chrome, prometheus, snapshot};
use omniheap_trace::{Limits, Op, Trace, binary, csv, report};
use std::fs::File;

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(input), Some(output)) = (arguments.next(), arguments.next()) else {
        return Err("usage: export TRACE OUT.{json,pickle,prom,csv,trace}".into());
    };
    let trace = Trace::open(&input)?;
    let file = File::create(&output)?;
    match output.rsplit('.').next().unwrap_or_default() {
        "json" => chrome::write(&trace, chrome::Detail::Allocations, file)?,
        "prom" => {
            prometheus::write(&prometheus::from_report(&report::from_trace(&trace, &input)), file)?;
        }
        "csv" => println!("{} events have no place in CSV", csv::write(&trace, file)?),
        "trace" => binary::write(&trace, file).map(|_| ())?,
        "pickle" => {
            let placed = trace.events().iter().any(|event| matches!(event.op, Op::Bind { .. }));
            let trace =
                if placed { trace } else { report::bind_by_model(&trace, &Limits::default())? };
            snapshot::write(&trace, file)?;
        }
        other => return Err(format!("no format is called {other}").into()),
    }
    Ok(())
}
