//! What the fuzzer starts from and what it found, once more: `fuzz/corpus`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

use std::path::Path;

use hwprobe::fuzzing::TARGETS;

#[test]
fn every_input_of_the_corpus_keeps_what_its_target_promises() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (name, target) in TARGETS {
        let mut inputs = 0;
        for entry in std::fs::read_dir(corpus.join(name)).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            target(&std::fs::read(path).unwrap());
            inputs += 1;
        }
        assert!(inputs > 0, "{name} has no input");
    }
}
