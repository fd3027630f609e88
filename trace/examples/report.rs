//! Turns a trace into a picture: `cargo run --release -p omniheap-trace --example report -- TRACE OUT.html`
//!
//! A trace that does not say where its allocations lie gets the places that PyTorch's policy would choose.

use omniheap_trace::report::{self, Comparison};
use omniheap_trace::{Limits, Op, Trace, model};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(input), Some(output)) = (arguments.next(), arguments.next()) else {
        return Err("usage: report TRACE OUT.html".into());
    };
    let recorded = Trace::open(&input)?;
    let placed = recorded.events().iter().any(|event| matches!(event.op, Op::Bind { .. }));
    let trace =
        if placed { recorded } else { report::bind_by_model(&recorded, &Limits::default())? };
    let title = Path::new(&input)
        .file_name()
        .map_or(input.clone(), |name| name.to_string_lossy().into_owned());
    let mut data = report::from_trace(&trace, &title);
    let outcome = model::pytorch(&trace);
    data.comparison.push(Comparison {
        name: "PyTorch's default policy (model)".to_owned(),
        peak_reserved_bytes: outcome.peak_reserved_bytes,
        ratio: outcome.ratio(),
    });
    report::write_html(&data, BufWriter::new(File::create(&output)?))?;
    println!("{output}: {} bytes", std::fs::metadata(&output)?.len());
    Ok(())
}
