//! The answer of `omniheap fit` as a page.
use super::{Answer, Row};
use omniheap::trace::Trace;
use omniheap::trace::report::{self, Fact, Fit, Gain};
use omniheap_cli::Failure;
use omniheap_cli::file::NewFile;
use omniheap_cli::output;
use omniheap_cli::page::page_of;

/// Writes the page of one trace: the report of its events, with the answer at its head.
pub(super) fn write(file: NewFile, trace: &Trace, answer: &Answer) -> Result<(), Failure> {
    let mut data = page_of(trace, &answer.name)
        .map_err(|error| Failure::input(format!("{}: {error}", answer.name)))?;
    data.facts.splice(0..0, facts(answer));
    data.fit = Some(fit(answer));
    data.gains = answer.changes.iter().map(gain).collect();
    file.write(|sink| report::write_html(&data, sink)).map(drop)
}

fn fit(answer: &Answer) -> Fit {
    Fit {
        fits: answer.fits,
        capacity_bytes: answer.capacity_bytes,
        left_bytes: answer.left_bytes,
        peak_reserved_bytes: answer.peak_reserved_bytes,
        allocator: answer.allocator.title().to_owned(),
    }
}

fn facts(answer: &Answer) -> Vec<Fact> {
    let fact = |name: &str, value: String| Fact { name: name.to_owned(), value };
    let at = Some(&answer.peak.label).filter(|label| !label.is_empty());
    let mut facts: Vec<_> = at.map(|label| fact("peak at", label.clone())).into_iter().collect();
    for each in &answer.peak.categories {
        facts.push(fact(each.category.word(), output::bytes(each.bytes)));
    }
    facts.push(fact("reserved, not live", output::bytes(answer.unused_bytes)));
    facts
}

fn gain(row: &Row) -> Gain {
    Gain {
        change: row.change.clone(),
        gained_bytes: row.gained_bytes,
        fits: row.fits,
        not_known: row.not_known.clone(),
    }
}
