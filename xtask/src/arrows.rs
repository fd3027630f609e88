//! Checks that the modules of the core import in one direction only.
use crate::root;
use crate::step::Outcome;
use crate::words::files;
use std::collections::BTreeSet;
use std::fs;

/// The modules of the core. Each imports only those before it.
const ORDER: [&str; 9] =
    ["event", "sync", "device", "guards", "sleep", "lane", "pool", "defrag", "manager"];

/// The three parts of what a lane's lock guards. Only the state that composes them knows two of them.
const PARTS: [(&str, &str); 3] = [
    ("lane/occupancy.rs", "struct Occupancy {"),
    ("lane/bytes.rs", "struct Bytes<B: Backend> {"),
    ("lane/order.rs", "struct Order {"),
];

/// Checks every file of the core.
pub(crate) fn check() -> Outcome {
    let core = root().join("core/manager/src");
    let read = |path: &std::path::Path| {
        fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let lib = read(&core.join("lib.rs"))?;
    let below = names_from_below(&lib);
    let mut wrong = Vec::new();
    for path in files(&core).map_err(|error| format!("{}: {error}", core.display()))? {
        let inside = path.strip_prefix(&core).unwrap_or(&path).with_extension("");
        let module = inside.iter().next().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(own) = ORDER.iter().position(|known| *known == module) {
            let found = wrong_imports(&read(&path)?, own, &below);
            wrong.extend(found.into_iter().map(|what| format!("{}: {what}", path.display())));
        }
    }
    for (file, part) in PARTS {
        if has_visible_field(&read(&core.join(file))?, part) {
            wrong.push(format!("{file}: a field is visible outside `{part}`"));
        }
    }
    wrong.iter().for_each(|line| println!("    {line}"));
    match wrong.len() {
        0 => Ok(()),
        count => Err(format!("{count} imports of the core run backwards; its order is {ORDER:?}")),
    }
}

/// Returns the names that the core re-exports from crates below it. Any module may import them from the crate root.
fn names_from_below(lib: &str) -> BTreeSet<&str> {
    let lists = lib.split("pub use omniheap_").skip(1).filter_map(|rest| {
        let list = rest.split_once('{')?.1.split_once('}')?.0;
        Some(list.split(',').map(str::trim))
    });
    lists.flatten().filter(|name| !name.is_empty()).collect()
}

/// Returns the imports of a file that name a later module, or that hide their module.
fn wrong_imports(text: &str, own: usize, below: &BTreeSet<&str>) -> Vec<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join("\n");
    let mut wrong = Vec::new();
    for path in code.split("crate::").skip(1) {
        for name in first_names(path) {
            match ORDER.iter().position(|known| *known == name) {
                Some(at) if at <= own => {}
                Some(_) => wrong.push(format!("{} imports {name}", ORDER[own])),
                None if below.contains(name) => {}
                None => wrong.push(format!("{name} is imported without its module")),
            }
        }
    }
    wrong
}

/// Returns whether a field of a structure is visible outside its module, or the structure is not there.
fn has_visible_field(text: &str, part: &str) -> bool {
    let fields = text.split_once(part).and_then(|(_, fields)| fields.split_once("\n}"));
    fields.is_none_or(|(fields, _)| fields.contains("pub"))
}

/// Returns the first name of a path behind `crate::`, or all names of a list there.
fn first_names(path: &str) -> Vec<&str> {
    let is_end = |c: char| !c.is_alphanumeric() && c != '_';
    let first = |text: &'_ str| text.find(is_end).unwrap_or(text.len());
    match path.strip_prefix('{') {
        None => vec![&path[..first(path)]],
        Some(list) => {
            let list = list.split('}').next().unwrap_or_default();
            let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
            names.map(|name| &name[..first(name)]).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{has_visible_field, names_from_below, wrong_imports};

    #[test]
    fn the_parts_of_a_lane_keep_their_fields() {
        let part = "struct Order {";
        let of = |field: &str| format!("pub(super) {part}\n    {field}\n}}\npub fn f() {{}}");
        assert!(!has_visible_field(&of("slots: Slots,"), part));
        assert!(has_visible_field(&of("pub(crate) slots: Slots,"), part));
        assert!(has_visible_field("it has another name", part));
    }

    const LIB: &str =
        "pub use omniheap_seam::{Align, Backend,\n Heap};\npub use {manager::Manager};";

    fn wrong(text: &str) -> Vec<String> {
        wrong_imports(text, 2, &names_from_below(LIB))
    }

    #[test]
    fn imports_of_earlier_modules_and_of_crates_below_pass() {
        assert!(
            wrong("use crate::{Align, Heap};\nuse crate::event::Event;\ncrate::device::f()")
                .is_empty()
        );
        assert!(wrong("/// See [`crate::Manager`].").is_empty());
    }

    #[test]
    fn imports_of_later_modules_and_without_a_module_are_found() {
        assert_eq!(wrong("use crate::pool::Lane;"), ["device imports pool"]);
        assert_eq!(wrong("fn f(_: crate::manager::Manager) {}"), ["device imports manager"]);
        assert_eq!(
            wrong("use crate::{Align, Manager};"),
            ["Manager is imported without its module"]
        );
    }
}
