from windfall.cli import main

main()
