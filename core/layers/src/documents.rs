//! The tables of answers say what the seam's documents say, and nothing else.
use crate::{CallKind, errors, is_documented};
use omniheap_seam::ErrorKind;
use std::collections::{BTreeMap, BTreeSet};

/// Errors that any call may answer: see `Backend`.
const OF_EVERY_CALL: [ErrorKind; 4] =
    [ErrorKind::OutOfHostMemory, ErrorKind::DeviceLost, ErrorKind::Driver, ErrorKind::Busy];

fn source(file: &str) -> String {
    let path = format!("{}/../seam/src/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The text of each function's section on errors, by its name.
fn sections() -> BTreeMap<String, String> {
    let mut sections = BTreeMap::new();
    for file in ["backend.rs", "backend/remap.rs"] {
        let (mut section, mut is_errors) = (String::new(), false);
        for line in source(file).lines().map(str::trim) {
            if let Some(text) = line.strip_prefix("///") {
                let text = text.trim();
                if text.starts_with("# ") {
                    is_errors = text == "# Errors";
                } else if is_errors {
                    section += text;
                    section.push(' ');
                }
                continue;
            }
            let function = line.split_once("fn ").and_then(|(_, rest)| rest.split_once('('));
            if let Some((name, _)) = function.filter(|_| !section.is_empty()) {
                sections.insert(name.to_owned(), core::mem::take(&mut section));
            }
            (section, is_errors) = (String::new(), false);
        }
    }
    sections
}

/// The kinds that a function lists, and those of the functions that it refers to.
fn listed(sections: &BTreeMap<String, String>, name: &str) -> BTreeSet<String> {
    let text = sections.get(name).unwrap_or_else(|| panic!("`{name}` lists no errors"));
    let mut kinds = BTreeSet::new();
    for quoted in text.split('`').skip(1).step_by(2) {
        if ErrorKind::ALL.iter().any(|kind| format!("{kind:?}") == quoted) {
            kinds.insert(quoted.to_owned());
        }
    }
    for (_, rest) in
        text.match_indices("As for [`").map(|(at, found)| text.split_at(at + found.len()))
    {
        let other = rest.split('`').next().unwrap_or_default();
        kinds.extend(listed(sections, other.trim_start_matches("Backend::")));
    }
    kinds
}

fn snake(kind: CallKind) -> String {
    let mut name = String::new();
    for letter in format!("{kind:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

#[test]
fn tables_and_documents_list_the_same_errors() {
    let sections = sections();
    let mut wrong = Vec::new();
    for call in CallKind::ALL {
        let documents = listed(&sections, &snake(*call));
        for kind in ErrorKind::ALL.iter().filter(|kind| !OF_EVERY_CALL.contains(kind)) {
            match (documents.contains(&format!("{kind:?}")), is_documented(*call, *kind)) {
                (true, false) => wrong.push(format!("{call:?}: {kind:?} is only in the documents")),
                (false, true) => wrong.push(format!("{call:?}: {kind:?} is only in the tables")),
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_call_may_answer_the_errors_of_every_call() {
    for call in CallKind::ALL {
        for kind in OF_EVERY_CALL {
            assert!(errors(*call).contains(&kind), "{call:?} never answers {kind:?}");
        }
    }
}
