//! Prints the inventory of this machine, or of a captured tree: `probe [--json] [DIR]`.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut json = false;
    let mut dir = None;
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--json" => json = true,
            _ => dir = Some(arg),
        }
    }
    let roots = match &dir {
        Some(dir) => hwprobe::Roots::under(Path::new(dir))?,
        None => hwprobe::Roots::live()?,
    };
    let inventory = hwprobe::probe(&roots, &hwprobe::Options::default());
    if json {
        println!("{}", serde_json::to_string_pretty(&inventory)?);
    } else {
        print!("{}", hwprobe::table::render(&inventory, 80));
    }
    Ok(())
}
