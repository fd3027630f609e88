//! `cargo xtask mutants`: mutates the sources with every operator of a list, and runs the tests on each mutant.
//!
//! All mutants are built at once, each behind a number in the environment, so one build serves thousands of them. A first run of
//! each test notes which places it executes; a mutant is tried on those tests only, the most promising first.
mod find;
mod suite;

use crate::binaries::beside;
use crate::bite;
use crate::step::{Outcome, seconds};
use crate::{cargo, root, target};
use core::hash::{Hash as _, Hasher as _};
use core::ops::Range;
use core::time::Duration;
use find::Mutant;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::DefaultHasher;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Instant;
use suite::{Binary, Runs, Tests, Verdict, cores};

/// Folders that are mutated where nothing is named.
const FOLDERS: [&str; 5] = [
    "core/seam/src",
    "core/strategy/src",
    "core/manager/src",
    "backends/host/src",
    "tools/trace/src",
];

/// Packages whose tests are run, by the folder that is mutated.
const PACKAGES: [(&str, &[&str]); 11] = [
    ("tools/trace/", &["omniheap-trace"]),
    ("lab/fit/", &["omniheap-fit"]),
    ("lab/plan/", &["omniheap-plan", "omniheap-model"]),
    ("core/seam/", &["omniheap-seam", "omniheap-core", "omniheap-host", "omniheap-model"]),
    ("core/strategy/", &["omniheap-strategy", "omniheap-model", "omniheap-host"]),
    ("core/placement/", &["omniheap-placement", "omniheap-host", "omniheap-model"]),
    (
        "core/manager/",
        &[
            "omniheap-core",
            "omniheap-host",
            "omniheap-model",
            "omniheap-extras",
            "omniheap-residency",
        ],
    ),
    ("backends/host/", &["omniheap-host", "omniheap-model"]),
    ("backends/stream/", &["omniheap-stream", "omniheap-model"]),
    ("bindings/c/", &["omniheap-c"]),
    ("bindings/torch/", &["omniheap-torch"]),
];

/// The tests of [`sample`]: those that are built soonest.
const SAMPLE_TESTS: [&str; 19] = [
    "-p",
    "omniheap-seam",
    "-p",
    "omniheap-strategy",
    "-p",
    "omniheap-core",
    "-p",
    "omniheap-model",
    "--lib",
    "--test",
    "strategies",
    "--test",
    "order",
    "--test",
    "sessions",
    "--test",
    "host_memory",
    "--test",
    "numbers",
];

/// Packages that tests spend little time in, and builds much.
const UNOPTIMISED: [&str; 4] = ["omniheap-limits", "omniheap-plan", "proptest", "regex-syntax"];

/// For how long the test run tries mutants, once the tests are built.
const SAMPLE_TAKES: Duration = Duration::from_secs(120);
/// Time that the tests of one mutant may take there: most that is caught is caught in a second, and what survives takes
/// it all.
const SAMPLE_MOST: Duration = Duration::from_secs(10);
/// Time that they may take elsewhere.
const MOST: Duration = Duration::from_secs(60);

/// The switch, in every crate that is changed.
const SWITCH: &str = r#"
pub(crate) use mutant_switch::mutant;
mod mutant_switch {
    extern crate std;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
    /// The mutant of this run; notes that the place of `number` was executed where somebody wants to know.
    #[inline]
    pub(crate) fn mutant(number: usize) -> usize {
        static WHICH: AtomicUsize = AtomicUsize::new(usize::MAX);
        match WHICH.load(Relaxed) {
            which if which < usize::MAX - 1 => which,
            _ => slow_mutant(number, &WHICH),
        }
    }
    #[cold]
    fn slow_mutant(number: usize, which: &AtomicUsize) -> usize {
        const WORDS: usize = 4096;
        static SEEN: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
        let (seen, bit) = (&SEEN[number / 64 % WORDS], 1 << (number % 64));
        if seen.load(Relaxed) & bit != 0 {
            return 0;
        }
        let Ok(file) = std::env::var("OMNIHEAP_MUTANTS_SEEN") else {
            let set = std::env::var("OMNIHEAP_MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
            which.store(set, Relaxed);
            return set;
        };
        which.store(usize::MAX - 1, Relaxed);
        if seen.fetch_or(bit, Relaxed) & bit == 0 {
            use std::io::Write as _;
            let file = std::fs::OpenOptions::new().create(true).append(true).open(file);
            let _ = file.and_then(|mut file| file.write_all(std::format!("{number}\n").as_bytes()));
        }
        0
    }
}
"#;

struct Options {
    paths: Vec<String>,
    /// So many mutants of each path.
    count: Option<usize>,
    seed: u64,
    /// No more are begun after this time.
    takes: Option<Duration>,
    /// Time that the tests of one mutant may take.
    most: Duration,
    /// The packages whose tests are run; none for those of [`PACKAGES`].
    tests: Vec<String>,
    /// Only [`SAMPLE_TESTS`] are run.
    is_quick: bool,
    /// Only what was tried before and not caught.
    again: bool,
}

/// Tries every mutant of the named folders or files, or of [`FOLDERS`], or a sample of each.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let options = parse(arguments)?;
    let (mutants, tests) = prepare(&options.paths, &tests_of(&options), options.most)?;
    let state = Mutex::new(State::load()?);
    let lock = || state.lock().expect("nobody panics");
    let mut chosen = choose(&mutants, &options);
    let known = chosen.len();
    chosen.retain(|one| match lock().of(one) {
        Some(verdict) => !is_caught(&verdict),
        None => !options.again,
    });
    println!("    {} of {known} are left out", known - chosen.len());
    try_all(chosen, &tests, options.takes, |mutant, verdict| lock().note(mutant, verdict));
    let mut state = state.into_inner().expect("nobody panics");
    state.save()?;
    write_scores(&mutants, &mut state)
}

/// A sample with another seed each time, for the test run: it shows what survives, and luck decides nothing else.
pub(crate) fn sample() -> Outcome {
    let mut options = parse(
        &["core/seam/src", "core/strategy/src", "core/manager/src", "--sample", "14"]
            .map(String::from),
    )?;
    options.takes = Some(SAMPLE_TAKES);
    let (mutants, tests) = prepare(&options.paths, &SAMPLE_TESTS, SAMPLE_MOST)?;
    try_all(choose(&mutants, &options), &tests, options.takes, |_, _| ());
    Ok(())
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let (mut paths, mut count, mut seed, mut takes) = (Vec::new(), None, None, None);
    let (mut tests, mut most) = (Vec::new(), MOST);
    let (mut is_quick, mut again) = (false, false);
    let mut rest = arguments.iter();
    let number = |text: Option<&String>| text.and_then(|text| text.parse::<u64>().ok());
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--sample" => count = Some(number(rest.next()).ok_or("--sample N")?),
            "--seed" => seed = Some(number(rest.next()).ok_or("--seed S")?),
            "--tests" => tests.push(rest.next().ok_or("--tests PACKAGE")?.clone()),
            "--most" => most = Duration::from_secs(number(rest.next()).ok_or("--most SECONDS")?),
            "--quick" => is_quick = true,
            "--again" => again = true,
            "--minutes" => takes = Some(number(rest.next()).ok_or("--minutes M")?),
            path if root().join(path).exists() => paths.push(path.to_owned()),
            other => return Err(format!("{other} is neither an option nor a path")),
        }
    }
    if paths.is_empty() {
        paths = FOLDERS.map(String::from).into();
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = seed.unwrap_or_else(|| now.map_or(0, |now| now.as_secs()));
    let count = count.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    Ok(Options {
        paths,
        count,
        seed,
        takes: takes.map(|minutes| Duration::from_secs(minutes * 60)),
        most,
        tests,
        is_quick,
        again,
    })
}

/// Builds everything, and runs the tests without a mutant.
fn prepare(
    paths: &[String],
    tests: &[&str],
    most: Duration,
) -> Result<(Vec<Mutant>, Tests), String> {
    let start = Instant::now();
    let (mutants, binaries) = build(paths, tests)?;
    println!("    {} mutants in one build, {}", mutants.len(), seconds(start.elapsed()));
    Ok((mutants, Tests::measure(&binaries, most)?))
}

/// The mutants to try: all, or so many of each path. They are mixed, so that a run that is stopped has tried some of everything.
fn choose<'a>(mutants: &'a [Mutant], options: &Options) -> Vec<&'a Mutant> {
    let mut chosen = match options.count {
        Some(count) => some_of_each(mutants, options, count),
        None => mutants.iter().collect(),
    };
    shuffle(&mut chosen, options.seed);
    chosen
}

fn some_of_each<'a>(mutants: &'a [Mutant], options: &Options, count: usize) -> Vec<&'a Mutant> {
    println!("    {count} of each path; the same again: --sample {count} --seed {}", options.seed);
    let of = |path: &String| {
        let mut here: Vec<_> = mutants.iter().filter(|one| one.file.starts_with(path)).collect();
        shuffle(&mut here, options.seed);
        here.truncate(count);
        here
    };
    options.paths.iter().flat_map(of).collect()
}

/// Builds the tests over a copy of the tree with every change; those that do not compile are left out.
fn build(folders: &[String], tests: &[&str]) -> Result<(Vec<Mutant>, Vec<Binary>), String> {
    let tree = target().join("mutants/tree");
    bite::copy(&tree)?;
    let known = equivalent()?;
    let mut broken = load_broken();
    loop {
        let (mutants, places) = write(&tree, folders, |one| {
            known.contains(&line(one)) || broken.contains(&(line(one), one.line))
        })?;
        let errors = match compile(&tree, tests)? {
            Ok(binaries) => return Ok((mutants, binaries)),
            Err(errors) => errors,
        };
        let before = broken.len();
        let blamed = blamed(&errors, &places);
        let mutants = mutants.iter().filter(|one| blamed.contains(&one.number));
        broken.extend(mutants.map(|one| (line(one), one.line)));
        if broken.len() == before {
            return Err(format!("the copy with changes does not build: {errors:?}"));
        }
        save_broken(&broken)?;
    }
}

/// The numbers of changes that do not compile: those with an error in them. Where there is none, those between the errors: a statement that
/// is left out does not consume what it was given, which then borrows for too long, and the compiler complains of all but the statement.
fn blamed(errors: &Errors, places: &Places) -> BTreeSet<usize> {
    let of = |(file, at): &(String, usize)| {
        places.get(file)?.iter().find(|(range, _)| range.contains(at)).map(|(_, number)| *number)
    };
    let inside: BTreeSet<_> = errors.iter().filter_map(of).collect();
    if !inside.is_empty() {
        return inside;
    }
    let is_between = |name: &String, range: &Range<usize>| {
        let mut here = errors.iter().filter(|(file, _)| file == name).map(|(_, at)| *at);
        here.clone().any(|at| at < range.start) && here.any(|at| range.end < at)
    };
    let all = places.iter().flat_map(|(name, here)| here.iter().map(move |one| (name, one)));
    all.filter(|(name, (range, _))| is_between(name, range))
        .map(|(_, (_, number))| *number)
        .collect()
}

/// The changes that do not compile, each with the number of its line.
type Broken = BTreeSet<(String, usize)>;

fn broken_path() -> PathBuf {
    target().join("mutants/broken.json")
}

/// Returns the changes that did not compile in an earlier run. To find them again, everything would be built again: with other changes
/// in it, no source is as it was the last time.
fn load_broken() -> Broken {
    let text = fs::read_to_string(broken_path()).unwrap_or_default();
    broken_in(&text)
}

/// Reads what [`save_broken`] wrote; nothing where that is damaged, because all of it can be found again.
fn broken_in(text: &str) -> Broken {
    serde_json::from_str::<Value>(text).ok().as_ref().and_then(Value::as_array).map_or_else(
        Broken::new,
        |all| {
            let one = |one: &Value| {
                Some((one[0].as_str()?.to_owned(), usize::try_from(one[1].as_u64()?).ok()?))
            };
            all.iter().filter_map(one).collect()
        },
    )
}

fn save_broken(broken: &Broken) -> Outcome {
    let all: Vec<_> = broken.iter().map(|(change, line)| json!([change, line])).collect();
    bite::save(&broken_path(), &Value::from(all).to_string())
}

/// Places of errors: files, and bytes in them.
type Errors = Vec<(String, usize)>;
/// By file: where changes are in the changed text, and their numbers.
type Places = BTreeMap<String, Vec<(Range<usize>, usize)>>;

/// Writes the changed sources.
fn write(
    tree: &Path,
    folders: &[String],
    skipped: impl Fn(&Mutant) -> bool,
) -> Result<(Vec<Mutant>, Places), String> {
    let (mut mutants, mut places) = (Vec::new(), Places::new());
    let mut libraries = BTreeMap::new();
    let files: Vec<_> = folders.iter().flat_map(|folder| sources(&root().join(folder))).collect();
    let for_tests = files_for_tests(&files)?;
    for file in files.into_iter().filter(|file| !for_tests.contains(file)) {
        let name = file.strip_prefix(root()).unwrap_or(&file).display().to_string();
        let source = bite::read(&file)?;
        let changed = find::change(&name, &source, mutants.len() + 1, &skipped)?;
        mutants.extend(changed.mutants);
        places.insert(name.clone(), changed.places);
        if let Some((package, rest)) = name.split_once("src/") {
            let library = libraries.entry(format!("{package}src/lib.rs")).or_insert(None);
            if rest == "lib.rs" {
                *library = Some(changed.text);
                continue;
            }
        }
        save(&tree.join(&name), &changed.text)?;
    }
    for (library, changed) in libraries {
        let text = changed.map_or_else(|| bite::read(&root().join(&library)), Ok)?;
        save(&tree.join(&library), &(text + SWITCH))?;
    }
    Ok((mutants, places))
}

/// Lists the files of modules that are built for tests only.
fn files_for_tests(files: &[PathBuf]) -> Result<BTreeSet<PathBuf>, String> {
    let mut found = BTreeSet::new();
    for file in files {
        let folder = if file.ends_with("lib.rs") {
            file.with_file_name("")
        } else {
            file.with_extension("")
        };
        let names = find::modules_for_tests(&file.display().to_string(), &bite::read(file)?)?;
        found.extend(names.iter().map(|name| folder.join(name).with_extension("rs")));
    }
    Ok(found)
}

/// Writes a changed source; one that is as it was the last time keeps its age, so that cargo does not build it again.
fn save(path: &Path, text: &str) -> Outcome {
    bite::save(path, text)?;
    let name = path.to_string_lossy().replace('/', "+");
    let last = target().join("mutants/written").join(name);
    if fs::read_to_string(&last).is_ok_and(|last| last == text) {
        let age = fs::metadata(&last).and_then(|about| about.modified());
        let file = fs::File::options().append(true).open(path);
        let kept = age.and_then(|age| file?.set_modified(age));
        return kept.map_err(|error| format!("{}: {error}", path.display()));
    }
    fs::create_dir_all(target().join("mutants/written")).map_err(|error| error.to_string())?;
    bite::save(&last, text)
}

/// Every source below a path; tests and models have files of their own.
fn sources(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let mut entries: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    let is_source = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let is_for_tests = name.starts_with("tests") || name.starts_with("models");
        !is_for_tests && (path.is_dir() || name.ends_with(".rs"))
    };
    entries.into_iter().filter(is_source).flat_map(|path| sources(&path)).collect()
}

/// Cargo's arguments for the tests that were asked for, or for those of what is changed.
fn tests_of(options: &Options) -> Vec<&str> {
    if options.is_quick {
        return SAMPLE_TESTS.into();
    }
    let under = |folder: &str| options.paths.iter().any(|path| path.starts_with(folder));
    let usual = PACKAGES.iter().filter(|(folder, _)| under(folder));
    let packages: BTreeSet<&str> = match &*options.tests {
        [] => usual.flat_map(|(_, packages)| packages.iter().copied()).collect(),
        asked => asked.iter().map(String::as_str).collect(),
    };
    packages.into_iter().flat_map(|name| ["-p", name]).chain(["--lib", "--tests"]).collect()
}

/// Builds the tests; where each binary is, or where errors are.
fn compile(tree: &Path, tests: &[&str]) -> Result<Result<Vec<Binary>, Errors>, String> {
    let mut command = cargo(&["test", "--release", "--no-run", "--message-format=json"]);
    command.args(tests);
    // Quick to run, and with every check of a debug build.
    let flags = "--cap-lints allow -Cdebug-assertions -Coverflow-checks";
    command.args(["--config", "profile.release.opt-level=1"]);
    command.args(["--config", "profile.release.package.'*'.opt-level=0"]);
    // Tests of a package spend their time in it, so only the other packages stay unoptimised.
    for package in UNOPTIMISED.iter().filter(|package| !tests.contains(package)) {
        command.args(["--config", &format!("profile.release.package.{package}.opt-level=0")]);
    }
    command.current_dir(tree).env("RUSTFLAGS", flags);
    command.env("CARGO_TARGET_DIR", target().join("mutants/built"));
    let output =
        command.stderr(Stdio::null()).output().map_err(|error| format!("cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if output.status.success() {
        let binary = |message: &Value| {
            let path = message["executable"].as_str().map(PathBuf::from)?;
            let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
            let name = message["target"]["name"].as_str()?.to_owned();
            Some(Binary { name, path, folder, runs: Runs::Itself })
        };
        let python = tests.contains(&"omniheap-torch").then(|| python(tree));
        return Ok(Ok(messages.iter().filter_map(binary).chain(python).collect()));
    }
    let errors = messages.iter().filter(|message| message["message"]["level"] == "error");
    let spans = errors
        .flat_map(|message| message["message"]["spans"].as_array().cloned().unwrap_or_default());
    let place = |span: Value| {
        let at = usize::try_from(span["byte_start"].as_u64()?).ok()?;
        let name = span["file_name"].as_str()?;
        Some((
            name.strip_prefix(&*tree.to_string_lossy())
                .unwrap_or(name)
                .trim_start_matches('/')
                .to_owned(),
            at,
        ))
    };
    Ok(Err(spans.filter_map(place).collect()))
}

/// The Python package's tests, which call the library that its Rust tests are built with.
fn python(tree: &Path) -> Binary {
    let path = target().join("mutants/built/release/deps/libomniheap_torch.so");
    let folder = tree.join("bindings/torch/python/tests");
    Binary { name: "python".to_owned(), path, folder, runs: Runs::Python }
}

/// Tries mutants beside each other, for a time where there is one.
fn try_all(
    chosen: Vec<&Mutant>,
    tests: &Tests,
    takes: Option<Duration>,
    note: impl Fn(&Mutant, Verdict) + Sync,
) {
    let (start, wanted) = (Instant::now(), chosen.len());
    let counts = Mutex::new([0; 4]);
    beside(cores(), chosen, |mutant| {
        if takes.is_none_or(|takes| start.elapsed() < takes) {
            let verdict = match tests.look_for(mutant.number) {
                Ok(verdict) => verdict,
                Err(why) => {
                    println!("    a test cannot be run, and its mutant was not tried: {why}");
                    return true;
                }
            };
            if matches!(verdict, Verdict::Survived | Verdict::Unreached) {
                println!(
                    "    {verdict:?}: {}:{}: {}: {}",
                    mutant.file, mutant.line, mutant.change, mutant.text
                );
            }
            counts.lock().expect("nobody panics")[verdict as usize] += 1;
            note(mutant, verdict);
        }
        true
    });
    let [caught, hung, survived, unreached] = counts.into_inner().expect("nobody panics");
    let tried = caught + hung + survived + unreached;
    println!(
        "    {caught} caught, {hung} did not end, {survived} survived, {unreached} are reached by no test; {} were not tried; {}",
        wanted - tried,
        seconds(start.elapsed())
    );
}

/// Returns a name for a change that holds also after lines were added before it.
fn line(one: &Mutant) -> String {
    format!("{} | {} | {}", one.file, one.change, one.text)
}

/// The changes that are known to make no difference.
fn equivalent() -> Result<BTreeSet<String>, String> {
    let text = bite::read(&root().join("xtask/src/mutants/equivalent.txt"))?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| match line.rsplit_once(" | ") {
            Some((change, why)) if !why.is_empty() => Ok(change.to_owned()),
            _ => Err(format!("equivalent.txt: no reason in: {line}")),
        })
        .collect()
}

/// Outcomes of changes in earlier runs: a change of a file that is as it was need not be caught again.
struct State {
    verdicts: serde_json::Map<String, Value>,
    files: BTreeMap<String, u64>,
}

impl State {
    fn path() -> PathBuf {
        target().join("mutants/state.json")
    }

    fn load() -> Result<Self, String> {
        let text = fs::read_to_string(Self::path()).unwrap_or_else(|_| "{}".into());
        let verdicts =
            serde_json::from_str(&text).map_err(|error| format!("state.json: {error}"))?;
        Ok(Self { verdicts, files: BTreeMap::new() })
    }

    fn save(&self) -> Outcome {
        bite::save(&Self::path(), &Value::Object(self.verdicts.clone()).to_string())
    }

    fn key(&mut self, one: &Mutant) -> String {
        let hash = self.files.entry(one.file.clone()).or_insert_with(|| {
            let mut hasher = DefaultHasher::new();
            fs::read(root().join(&one.file)).unwrap_or_default().hash(&mut hasher);
            hasher.finish()
        });
        format!("{hash:x} {:?} {}", one.range, line(one))
    }

    fn note(&mut self, one: &Mutant, verdict: Verdict) {
        let key = self.key(one);
        self.verdicts.insert(key, json!(format!("{verdict:?}")));
        // A run that is stopped goes on where it was.
        if self.verdicts.len().is_multiple_of(16) {
            let _ = self.save();
        }
    }

    fn of(&mut self, one: &Mutant) -> Option<String> {
        let key = self.key(one);
        self.verdicts.get(&key).and_then(Value::as_str).map(String::from)
    }
}

fn is_caught(verdict: &str) -> bool {
    matches!(verdict, "Caught" | "Hung")
}

/// Writes the scores of all modules that were tried; those of others stay as they are.
fn write_scores(mutants: &[Mutant], state: &mut State) -> Outcome {
    let path = root().join("docs/results/mutants.md");
    let old = fs::read_to_string(&path).unwrap_or_default();
    let rows =
        old.lines().filter_map(|line| Some((line.split(" | ").next()?.strip_prefix("| `")?, line)));
    let mut rows: BTreeMap<String, String> =
        rows.map(|(name, line)| (name.trim_end_matches('`').to_owned(), line.to_owned())).collect();
    let mut modules: BTreeMap<&str, (usize, [usize; 3])> = BTreeMap::new();
    for one in mutants {
        let (all, counts) = modules.entry(module(&one.file)).or_default();
        *all += 1;
        match state.of(one).as_deref() {
            Some(verdict) if is_caught(verdict) => counts[0] += 1,
            Some("Survived") => counts[1] += 1,
            Some(_) => counts[2] += 1,
            None => {}
        }
    }
    for (module, (all, [caught, survived, unreached])) in modules {
        let tried = caught + survived + unreached;
        let share = caught * 1000 / tried.max(1);
        let share = format!("{}.{} %", share / 10, share % 10);
        let row = format!(
            "| `{module}` | {all} | {tried} | {caught} | {survived} | {unreached} | {share} |"
        );
        if tried > 0 {
            rows.insert(module.to_owned(), row);
        }
    }
    let (about, _) = old.split_once(TABLE).unwrap_or((HEADING, ""));
    let rows: Vec<_> = rows.into_values().collect();
    bite::save(&path, &format!("{about}{TABLE}{}\n", rows.join("\n")))
}

/// Returns the module of a file: a folder of the sources, or all that lies beside the folders.
fn module(file: &str) -> &str {
    let sources = file.find("src/").map_or(0, |at| at + 4);
    let end = file[sources..].find('/').map_or(sources - 1, |at| sources + at);
    &file[..end]
}

const HEADING: &str = "\
# Mutants that tests catch

Written by `cargo xtask mutants [PATH…]`; see [docs/mutants.md](../mutants.md). A mutant is one operator applied at one place. `tried`: all, or a sample.
`caught`: a test fails or does not end. `survived`: tests execute the place and pass. `unreached`: no test executes it. Equivalent mutants are listed
with reasons in `xtask/src/mutants/equivalent.txt` and are not counted.

";

const TABLE: &str = "\
| module | mutants | tried | caught | survived | unreached | share caught |
|---|---|---|---|---|---|---|
";

/// Puts changes into an order that depends on a seed alone.
fn shuffle<T>(all: &mut [T], seed: u64) {
    let mut state = seed;
    for at in (1..all.len()).rev() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let other = usize::try_from((state >> 33) % (at as u64 + 1)).unwrap_or(0);
        all.swap(at, other);
    }
}

#[cfg(test)]
mod tests {
    use super::{Broken, Places, blamed, broken_in};
    use serde_json::json;
    use std::collections::BTreeSet;

    #[test]
    fn changes_that_do_not_compile_are_remembered_and_a_damaged_list_is_empty() {
        let known = Broken::from([("a.rs | + to - | x + y".to_owned(), 7)]);
        let text = json!([["a.rs | + to - | x + y", 7], ["b", "no line"], 3]).to_string();
        assert_eq!(broken_in(&text), known);
        assert_eq!(broken_in(""), Broken::new());
        assert_eq!(broken_in(&text[1..]), Broken::new());
    }

    #[test]
    fn an_error_in_a_change_blames_it_and_errors_around_changes_blame_those_between() {
        let places =
            Places::from([("a.rs".to_owned(), vec![(10..20, 1), (30..40, 2), (50..60, 3)])]);
        let at = |places_of_errors: &[usize]| {
            places_of_errors.iter().map(|at| ("a.rs".to_owned(), *at)).collect::<Vec<_>>()
        };
        assert_eq!(blamed(&at(&[5, 35]), &places), BTreeSet::from([2]));
        assert_eq!(blamed(&at(&[25, 45]), &places), BTreeSet::from([2]));
        assert_eq!(blamed(&at(&[25]), &places), BTreeSet::new());
        assert_eq!(blamed(&vec![("b.rs".to_owned(), 15)], &places), BTreeSet::new());
    }
}
